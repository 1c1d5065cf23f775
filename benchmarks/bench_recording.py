"""Question: what does looking at a whole program cost, beside memray and PyTorch's profiler?"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness import Metric, Question, Row, summarise

REPEATS = 9
STEPS = 12
# One training step on the CPU, timed from inside: starting the interpreter and importing are nobody's cost here.
PROGRAM = """
import time
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
optimizer = torch.optim.Adam(model.parameters())
def step():
    inputs = torch.rand(512, 512)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
def work(steps):
    for _ in range(3): step()
    start = time.perf_counter_ns()
    for _ in range(steps): step()
    print((time.perf_counter_ns() - start) / steps)
"""
PROFILED = """
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU], profile_memory=True):
    work({steps})
"""


def commands(folder: Path) -> dict[str, list[str]]:
    """How each peer runs a program, but for the program."""
    python = sys.executable
    ours = [python, "-m", "tensormem", "record", "-q", "-f", "-o", str(folder / "run.tmt")]
    found = {
        "nobody looks": [python],
        "tensormem": [*ours, "--", python],
        "tensormem, Python lines": [*ours, "--stacks", "--", python],
        "PyTorch's profiler": [python],
    }
    if importlib.util.find_spec("memray") is not None:
        found["memray"] = [python, "-m", "memray", "run", "-q", "-f", "-o", str(folder / "run.bin")]
    return found


def milliseconds(command: list[str], program: Path) -> float:
    done = subprocess.run([*command, str(program)], check=True, stdout=subprocess.PIPE, text=True, env=os.environ)
    return float(done.stdout.split()[-1]) / 1e6


def measure(say: Callable[[str], None]) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, profiled = folder / "plain.py", folder / "profiled.py"
        plain.write_text(PROGRAM + f"work({STEPS})\n")
        profiled.write_text(PROGRAM + PROFILED.format(steps=STEPS))
        peers = commands(folder)
        samples: dict[str, list[float]] = {peer: [] for peer in peers}
        for turn in range(REPEATS):
            say(f"turn {turn + 1} of {REPEATS}")
            for peer, command in peers.items():
                samples[peer].append(milliseconds(command, profiled if "profiler" in peer else plain))
    medians = {peer: summarise(taken).median_ns for peer, taken in samples.items()}
    base = medians["nobody looks"]
    return [
        Row(peer, None, {"ms": median, "percent": max(100 * (median / base - 1), 0.01)})
        for peer, median in medians.items()
    ]


QUESTION = Question(
    name="recording",
    title="What looking at a training step costs",
    asks=(
        "A training step on the CPU with one thread, timed from inside the program, while nobody looks, under "
        "`tensormem record` without and with Python lines, under memray (which always has Python lines; native traces "
        "off) and under PyTorch's profiler with memory."
    ),
    case_label="",
    metrics=[Metric("ms", "training step (ms)", logarithmic=False), Metric("percent", "added (%)", logarithmic=False)],
    measure=measure,
    packages=("tensormem", "torch", "memray"),
)
