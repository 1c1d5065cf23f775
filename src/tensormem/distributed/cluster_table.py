"""Owns: what a whole cluster has: a table of its workers by node, as text, as JSON, and for a notebook.

Must not know: how an engine is asked; each engine brings the rows.
"""

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any

from tensormem.distributed.worker_stats import WorkerStats
from tensormem.units import format_size

__all__ = ["ClusterStats", "NodeTotals", "of_rows"]

COLUMNS = ("node", "worker", "used", "peak", "budget", "limit", "fragmentation", "spilled", "refused")


@dataclass(frozen=True)
class NodeTotals:
    """All workers of a node together."""

    node: str
    workers: int
    used: int
    budget: int | None
    spilled: int


@dataclass(frozen=True)
class ClusterStats:
    """A row for each worker, by node. Printing it gives a table; `as_dict` and `to_json` raw values.

    >>> rows = [WorkerStats("ray", "ray-1f", "ray-77", 77, used=2 << 20, budget=8 << 20)]
    >>> print(ClusterStats("ray", rows))
    node    worker  used   peak  budget  limit  fragmentation  spilled  refused
    ray-1f  ray-77  2 MiB   0 B   8 MiB      -           0.00      0 B        0
    ray-1f  all 1   2 MiB     -   8 MiB      -              -      0 B        -
    """

    engine: str
    rows: list[WorkerStats]
    silent: list[str] = field(default_factory=list)
    """Nodes that did not answer in time."""
    wall_ns: int = field(default_factory=time.time_ns)

    def __post_init__(self) -> None:
        self.rows.sort(key=lambda row: (row.node, row.worker))

    def nodes(self) -> list[NodeTotals]:
        """The sums of each node."""
        return [_totals(name, rows) for name, rows in self._by_node()]

    def _by_node(self) -> Iterator[tuple[str, list[WorkerStats]]]:
        """Each node with its workers, in one pass: the rows are sorted by node."""
        for name, rows in groupby(self.rows, key=attrgetter("node")):
            yield name, list(rows)

    def as_dict(self) -> dict[str, Any]:
        """Raw values, with a version."""
        rows = [row.as_dict() for row in self.rows]
        return {"version": 1, "engine": self.engine, "wall_ns": self.wall_ns, "silent": self.silent, "workers": rows}

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.as_dict())

    def table(self) -> list[tuple[str, ...]]:
        """The cells for people: a heading, the workers of each node, and a line for all of them."""
        lines: list[tuple[str, ...]] = [COLUMNS]
        for name, rows in self._by_node():
            node = _totals(name, rows)
            lines += [_cells(row) for row in rows]
            budget = "-" if node.budget is None else format_size(node.budget)
            spilled = format_size(node.spilled)
            lines.append(
                (node.node, f"all {node.workers}", format_size(node.used), "-", budget, "-", "-", spilled, "-")
            )
        lines += [(name, "no answer", *("-",) * (len(COLUMNS) - 2)) for name in self.silent]
        return lines

    def __str__(self) -> str:
        lines = self.table()
        widths = [max(len(line[place]) for line in lines) for place in range(len(COLUMNS))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if place < 2 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        head, *lines = self.table()
        titles = "".join(f"<th>{html.escape(title)}</th>" for title in head)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
        return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _totals(name: str, rows: list[WorkerStats]) -> NodeTotals:
    budget = next((row.budget for row in rows if row.budget is not None), None)
    return NodeTotals(name, len(rows), sum(row.used for row in rows), budget, sum(row.spilled for row in rows))


def _cells(row: WorkerStats) -> tuple[str, ...]:
    def size(nbytes: int | None) -> str:
        return "-" if nbytes is None else format_size(nbytes)

    worker = row.worker if row.answered else f"{row.worker} (no answer)"
    sizes = (size(row.used), size(row.peak), size(row.budget), size(row.limit))
    return (row.node, worker, *sizes, f"{row.fragmentation:.2f}", size(row.spilled), str(row.refusals))


def of_rows(engine: str, found: Iterable[dict[str, Any]], silent: Iterable[str] = ()) -> ClusterStats:
    """The table of what workers said."""
    return ClusterStats(engine, [WorkerStats.from_dict(each) for each in found], sorted(silent))
