"""Owns: what all workers of this process's node have: from themselves, and from the ledger for who does not answer.

Must not know: engines.
"""

from __future__ import annotations

from typing import Any

from tensormem.distributed.budget import node_participants
from tensormem.distributed.cluster_node import Node
from tensormem.distributed.worker_discovery import ask, members
from tensormem.distributed.worker_stats import WorkerStats

__all__ = ["node_rows"]


def node_rows(node: Node, timeout: float = 2.0) -> list[dict[str, Any]]:
    """A row for every process of the node that was set up.

    >>> node_rows(Node.here("docs", "nobody"))
    []
    """
    said = {member.pid: ask(member, timeout) for member in members(node.key)}
    rows = [answer for answer in said.values() if answer is not None]
    for each in node_participants(node) if None in said.values() else ():
        if said.get(each.pid, ...) is None:
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
