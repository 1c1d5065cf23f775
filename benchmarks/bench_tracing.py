"""Question: what does recording add to a pooled allocation, taken and given back from Python?"""

import os
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import tensormem as tm
from harness import NANOSECONDS, Metric, Peer, Question, Row, summarise, time_peers, timing_row

NBYTES = 1024
ROUNDS = 15
STATEMENT = "free(take(n))"
EVENTS = 2  # of one statement


def time_once(mr: tm.mr.DeviceMemoryResource) -> float:
    """Short turns: a program that does nothing else would outrun any disk."""
    names = {"take": mr.allocate, "free": mr.deallocate, "n": NBYTES}
    return time_peers([Peer("", STATEMENT, names)], repeats=3, turn_ns=500_000)[""].median_ns


def time_recorded(mr: tm.mr.DeviceMemoryResource, *, stacks: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        with tm.trace(Path(folder) / "run.tmt", stacks=stacks) as recording:
            taken = time_once(mr)
        if recording.report.dropped:
            raise RuntimeError(f"{recording.report.dropped} events were lost, so the time means nothing")
        return taken


def time_bytes(*, traced: bool) -> float:
    """Python's own memory, and what its own tool for looking at memory adds."""
    if traced:
        tracemalloc.start(1)
    try:
        names: dict[str, object] = {"make": bytearray, "n": NBYTES}
        return time_peers([Peer("", "make(n)", names)], repeats=3, turn_ns=500_000)[""].median_ns
    finally:
        tracemalloc.stop()


def time_torch(*, profiled: bool) -> float:
    """PyTorch's memory on the CPU, and what its profiler adds when it records memory."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    names: dict[str, object] = {"make": torch.empty, "n": NBYTES, "dtype": torch.uint8}
    recorder = profile(activities=[ProfilerActivity.CPU], profile_memory=True) if profiled else nullcontext()
    with recorder:
        return time_peers([Peer("", "make(n, dtype=dtype)", names)], repeats=3, turn_ns=500_000)[""].median_ns


def in_turns(ways: dict[str, tuple[Callable[[], float], str]]) -> list[Row]:
    """All ways once per round. What an event adds is the median of the rounds, each beside its own plain time."""
    rounds = [{name: time_way() for name, (time_way, _) in ways.items()} for _ in range(ROUNDS)]
    rows = []
    for name, (_, plain) in ways.items():
        values = dict(timing_row(name, None, summarise([taken[name] for taken in rounds])).values)
        if plain:
            values["event_ns"] = median((taken[name] - taken[plain]) / EVENTS for taken in rounds)
        rows.append(Row(name, None, values))
    return rows


def logged(folder: str) -> tm.mr.DeviceMemoryResource:
    sink = tm.mr.CsvSink(os.path.join(folder, "log.csv"))
    return tm.mr.LoggingResourceAdaptor(tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), "64MiB"), sink=sink)


def measure(say: Callable[[str], None]) -> list[Row]:
    def pool() -> tm.mr.DeviceMemoryResource:
        return tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), "64MiB")

    plain, tracked = pool(), tm.mr.TrackingResourceAdaptor(pool())
    with_stacks = tm.mr.TrackingResourceAdaptor(pool(), capture_stacks=True)
    say("nothing recorded, recorded, and the observers there were before, in turns")
    with tempfile.TemporaryDirectory() as folder:
        logging = logged(folder)
        return in_turns(
            {
                "off": (lambda: time_once(plain), ""),
                "recording": (lambda: time_recorded(plain, stacks=False), "off"),
                "recording, with stacks": (lambda: time_recorded(plain, stacks=True), "off"),
                "tracking adaptor": (lambda: time_once(tracked), "off"),
                "tracking adaptor, with stacks": (lambda: time_once(with_stacks), "off"),
                "logging adaptor, RMM's CSV": (lambda: time_once(logging), "off"),
                "torch.empty": (lambda: time_torch(profiled=False), ""),
                "torch.empty, its profiler records memory": (lambda: time_torch(profiled=True), "torch.empty"),
                "bytearray": (lambda: time_bytes(traced=False), ""),
                "bytearray under tracemalloc": (lambda: time_bytes(traced=True), "bytearray"),
            }
        )


QUESTION = Question(
    name="tracing",
    title="Recording: what an event costs",
    asks=f"One block of {NBYTES} bytes taken and given back: two events. The memory history of PyTorch that its viewer "
    "opens is of GPUs only, and there is none here; its profiler records the memory of the CPU. Python's own "
    "tracemalloc stands for what a general tool costs.",
    case_label="",
    metrics=[NANOSECONDS, Metric("event_ns", "added to each event (ns)")],
    measure=measure,
    ours="recording",
    packages=("tensormem", "torch"),
)
