"""The table of a cluster: its sums, and what it costs to make one of many nodes, counted in calls."""

import sys
from typing import Any

from tensormem.distributed import ClusterStats, WorkerStats


def rows_of(nodes: int, workers: int = 2) -> list[WorkerStats]:
    return [
        WorkerStats("ray", f"node-{node}", f"worker-{node}-{worker}", worker, used=node, budget=100, spilled=1)
        for worker in range(workers)
        for node in range(nodes)
    ]


def steps_of(nodes: int) -> int:
    """How many functions are called, and comparisons of text made, to have the table in every form."""
    counted = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    rows = rows_of(nodes)
    sys.setprofile(count)
    try:
        stats = ClusterStats("ray", rows)
        str(stats), stats.nodes(), stats._repr_html_(), stats.to_json()
    finally:
        sys.setprofile(None)
    return counted


def lines_of(nodes: int) -> int:
    """How many lines run: a loop over all rows for every node shows here."""
    counted = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal counted
        counted += event == "line"
        return trace

    stats = ClusterStats("ray", rows_of(nodes))
    sys.settrace(trace)
    try:
        stats.nodes(), stats.table()
    finally:
        sys.settrace(None)
    return counted


def test_each_node_has_its_workers_and_a_line_for_all_of_them() -> None:
    stats = ClusterStats("ray", rows_of(3))
    assert [(node.node, node.workers, node.used, node.spilled) for node in stats.nodes()] == [
        (f"node-{number}", 2, 2 * number, 2) for number in range(3)
    ]
    assert [line[:2] for line in stats.table()[1:4]] == [
        ("node-0", "worker-0-0"),
        ("node-0", "worker-0-1"),
        ("node-0", "all 2"),
    ]


def test_a_table_of_twice_as_many_nodes_is_twice_the_work() -> None:
    for measure in (steps_of, lines_of):
        few, many = measure(300), measure(600)
        assert many < 2.2 * few, measure.__name__
