"""Owns: what things cost, measured: by the benchmark, whose file is read, or here and now where there is none.

Must not know: the simulation.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tensormem.distributed import ClusterStats, Declaration, Node, WorkerStack, WorkerStats

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "node_budget.json"
PAGE = 2 << 20
PEERS = {
    "claim_ns": "tensormem, claim and give back",
    "setup_ns": "tensormem, set up and take down a worker",
    "stats_ns": "tensormem, one worker says what it has",
    "row_ns": "tensormem, a row of cluster_stats",
}


@dataclass(frozen=True)
class Costs:
    """Nanoseconds of one operation, and bytes of what one worker says of itself."""

    claim_ns: float
    """A claim of one page in the ledger, and giving it back."""
    setup_ns: float
    stats_ns: float
    row_ns: float
    """Taking up the row of one worker where a table is made."""
    stats_bytes: int
    source: str


def load(file: Path = FILE) -> Costs:
    """The costs that the benchmark wrote, of the most workers it has measured; measured now if there is no file."""
    if not file.is_file():
        return measure()
    figures = json.loads(file.read_text())["figures"]
    found = {
        name: max((each for each in figures if each["peer"] == peer), key=lambda each: each["case"] or 0)["ns"]
        for name, peer in PEERS.items()
    }
    return Costs(**found, stats_bytes=message_bytes(), source=file.name)


def measure(rounds: int = 300) -> Costs:
    """A quick look, on this machine."""
    declared, node = Declaration(budget="64MiB"), Node.here("costs", "here")
    stack = WorkerStack(declared, node, "here")
    budget = stack.budget.shared
    assert budget is not None

    def claim() -> None:
        budget.claim(PAGE)
        budget.give_back(PAGE)

    row = stack.stats().as_dict()
    try:
        return Costs(
            claim_ns=_each(claim, rounds),
            setup_ns=_each(lambda: WorkerStack(declared, Node.here("costs", "there"), "there").close(), 5),
            stats_ns=_each(lambda: json.dumps(stack.stats().as_dict()), rounds),
            row_ns=_each(lambda: ClusterStats("docs", [WorkerStats.from_dict(row)]), rounds),
            stats_bytes=len(json.dumps(row)),
            source="measured now",
        )
    finally:
        stack.close()


def message_bytes() -> int:
    """How large the message is in which a worker says what it has."""
    full = WorkerStats(
        "ray", "ray-0123456789ab", "ray-0123456789ab", 1 << 20, "a-host-with-a-name", 1 << 34, 1 << 34, 1 << 34
    )
    return len(json.dumps(full.as_dict()))


def _each(work: Callable[[], object], rounds: int) -> float:
    work()
    begun = time.perf_counter_ns()
    for _ in range(rounds):
        work()
    return (time.perf_counter_ns() - begun) / rounds
