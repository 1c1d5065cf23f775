"""Owns: what all workers of this process's node have: from themselves, and from the ledger for who does not answer.

Must not know: engines.
"""

from __future__ import annotations

from typing import Any

from tensormem.distributed.budget import node_participants
from tensormem.distributed.cluster_node import Node
from tensormem.distributed.worker_discovery import ask, beacons, members
from tensormem.distributed.worker_stats import WorkerStats

__all__ = ["node_rows"]


def node_rows(node: Node, timeout: float = 2.0) -> list[dict[str, Any]]:
    """A row for every process of the node that was set up.

    >>> node_rows(Node.here("docs", "nobody"))
    []
    """
    rows = [answer for member in members(node.key) or beacons(node.key) if (answer := ask(member, timeout)) is not None]
    known = {(row.get("worker", "")[:64], row.get("pid")) for row in rows}
    for each in node_participants(node):
        if (each.name, each.pid) not in known:
            silent = WorkerStats(
                node.engine,
                node.name,
                each.name,
                each.pid,
                used=each.used,
                peak=each.peak,
                guaranteed=each.guaranteed,
                times_asked=each.times_asked,
                answered=False,
            )
            rows.append(silent.as_dict())
    return rows
