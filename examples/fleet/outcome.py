"""Owns: what became of a simulation, node by node, and of a cluster that consists of the first of them.

Must not know: how it was simulated.
"""

from dataclasses import dataclass, fields

import numpy
from numpy.typing import NDArray


@dataclass(frozen=True)
class Outcome:
    """A cluster. Bytes are sums over its nodes where nothing else is said."""

    nodes: int
    node_bytes: int
    requests: int
    admitted: int
    admitted_bytes: int
    returned_bytes: int
    left_bytes: int
    """In use after everybody has gone: 0, or memory was made or lost."""
    peak_node_bytes: int
    """The most that any node used."""
    average_node_bytes: float
    """Over time and nodes."""
    seconds: float
    """How long the trace lasts."""

    @property
    def admitted_share(self) -> float:
        """Of all requests."""
        return self.admitted / self.requests


@dataclass(frozen=True)
class NodeOutcomes:
    """All nodes of a run, one number each."""

    node_bytes: NDArray[numpy.int64]
    admitted: NDArray[numpy.int64]
    admitted_bytes: NDArray[numpy.int64]
    returned_bytes: NDArray[numpy.int64]
    left_bytes: NDArray[numpy.int64]
    peak_bytes: NDArray[numpy.int64]
    average_bytes: NDArray[numpy.float64]

    def cluster(self, nodes: int, requests: int, seconds: float) -> Outcome:
        """The first `nodes` of them, each of which had so many `requests` in so many `seconds`."""
        return Outcome(
            nodes,
            int(self.node_bytes[0]),
            nodes * requests,
            int(self.admitted[:nodes].sum()),
            int(self.admitted_bytes[:nodes].sum()),
            int(self.returned_bytes[:nodes].sum()),
            int(self.left_bytes[:nodes].sum()),
            int(self.peak_bytes[:nodes].max()),
            float(self.average_bytes[:nodes].mean()),
            seconds,
        )


def joined(parts: list[NodeOutcomes]) -> NodeOutcomes:
    """One after the other."""
    return NodeOutcomes(
        *(numpy.concatenate([getattr(part, each.name) for part in parts]) for each in fields(NodeOutcomes))
    )
