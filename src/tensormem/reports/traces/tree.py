"""Owns: the tree of those that report in a trace: who stands on whom, and what passed each.

Must not know: how it is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tensormem.trace import Peak, Reporter, Trace


@dataclass
class TreeNode:
    """One that reports, and those that stand on it."""

    reporter: Reporter
    peak: Peak | None
    above: list[TreeNode] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Raw values, for programs."""
        return {
            "id": self.reporter.id,
            "name": self.reporter.name,
            "space": self.reporter.space,
            "peak_bytes": 0 if self.peak is None else self.peak.nbytes,
            "peak_blocks": 0 if self.peak is None else self.peak.blocks,
            "final_bytes": 0 if self.peak is None else self.peak.final_bytes,
            "above": [node.as_json() for node in self.above],
        }


def tree_of(trace: Trace, *, idle: bool = False) -> list[TreeNode]:
    """The roots: leaves that make memory. Resources through which nothing passed are left out unless asked for.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.tmt"
    >>> pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    >>> with tm.trace(path):
    ...     block = pool.allocate(1000)
    >>> root = tree_of(tm.trace.open(path))[0]
    >>> root.reporter.name, root.above[0].reporter.name
    ('HostMemoryResource', 'PoolMemoryResource')
    """
    peaks = trace.peaks("resource")
    reporters = trace.names.reporters
    nodes = {number: TreeNode(found, peaks.get(str(found))) for number, found in sorted(reporters.items())}
    roots = []
    for number, node in nodes.items():
        below = nodes.get(node.reporter.below)
        # A damaged file may draw a circle; what does not lead down to a root becomes one.
        if below is None or not _leads_down(number, reporters):
            roots.append(node)
        else:
            below.above.append(node)
    return roots if idle else [node for node in roots if _keep_busy(node)]


def _leads_down(number: int, reporters: dict[int, Reporter]) -> bool:
    seen = {number}
    below = reporters[number].below
    while below in reporters:
        if below in seen:
            return False
        seen.add(below)
        below = reporters[below].below
    return True


def _keep_busy(node: TreeNode) -> bool:
    node.above = [above for above in node.above if _keep_busy(above)]
    return bool(node.above) or node.peak is not None
