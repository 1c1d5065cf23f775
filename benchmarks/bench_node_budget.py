"""Question: what do one budget for the workers of a node, their set-up, and watching them cost?"""

import json
import multiprocessing
from collections.abc import Callable
from contextlib import ExitStack

from harness import NANOSECONDS, Peer, Question, Row, time_peers, timing_row
from tensormem.distributed import ClusterStats, Declaration, Node, WorkerStack, WorkerStats
from tensormem.pools import SharedBudget

WORKERS = (1, 4, 16, 48)
PAGE = 2 << 20
DECLARED = Declaration(budget="1GiB", keep=0)


def claim_ours(budget: SharedBudget) -> None:
    budget.claim(PAGE)
    budget.give_back(PAGE)


def claim_naively(counter: "multiprocessing.sharedctypes.Synchronized[int]") -> None:
    """A number in shared memory and a lock: no guarantees, and a killed process keeps its share, or the lock."""
    with counter.get_lock():
        counter.value += PAGE
    with counter.get_lock():
        counter.value -= PAGE


def set_up(node: Node) -> None:
    WorkerStack(DECLARED, node, "next").close()


def peers(stack: WorkerStack) -> list[Peer]:
    row = stack.stats().as_dict()
    return [
        Peer("tensormem, claim and give back", "f(b)", {"f": claim_ours, "b": stack.budget.shared}),
        Peer("multiprocessing.Value, add and subtract", "f(c)", {"f": claim_naively, "c": multiprocessing.Value("q")}),
        Peer("tensormem, set up and take down a worker", "f(n)", {"f": set_up, "n": stack.node}),
        Peer("tensormem, one worker says what it has", "d(s.stats().as_dict())", {"d": json.dumps, "s": stack}),
        Peer(
            "tensormem, a row of cluster_stats",
            "C('ray', [W.from_dict(r)]).as_dict()",
            {"C": ClusterStats, "W": WorkerStats, "r": row},
        ),
    ]


def measure(say: Callable[[str], None]) -> list[Row]:
    rows = []
    for workers in WORKERS:
        say(f"{workers} workers")
        with ExitStack() as others:
            stack = WorkerStack(DECLARED, Node.here("bench", str(workers)), "measured")
            others.callback(stack.close)
            assert stack.budget.shared is not None
            for number in range(workers - 1):
                others.enter_context(SharedBudget.attach(stack.budget.shared.fd, name=f"worker {number}"))
            timings = time_peers(peers(stack))
        rows += [timing_row(name, workers, timing) for name, timing in timings.items()]
    return rows


QUESTION = Question(
    name="node_budget",
    title="One budget for a node: claims, set-up, statistics",
    asks="A claim is one page of 2 MiB, taken and given back in the ledger that all workers of a node share. Its peer "
    "is a number under a lock, which knows neither guarantees nor what a killed process had. Set-up makes the whole "
    "stack of a worker, joins its node, and takes it down again; starting a process and imports are not in it.",
    case_label="workers of the node",
    metrics=[NANOSECONDS],
    measure=measure,
    ours="tensormem, claim and give back",
    pairs=[("tensormem, claim and give back", "multiprocessing.Value, add and subtract")],
    packages=("tensormem",),
)
