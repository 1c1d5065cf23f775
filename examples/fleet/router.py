"""Owns: a cluster behind a router: one stream of requests, each sent to the node that uses least, which lets it in,
keeps it waiting in its queue for a while, or turns it away.

Event by event in plain Python, for some nodes; the simulation of many nodes without a router is another file. Must not
know: files, pictures.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy

from fleet.budgets import POLICIES, Budgets
from fleet.requests import Workload
from fleet.simulation import FASHION_SECONDS, MODELS, POPULARITY

PATIENCE_SECONDS = 10.0  # how long a request waits before it is turned away
_GOES, _GIVES_UP = 0, 1  # at one moment, those who go make room first


@dataclass(frozen=True)
class Routed:
    """What became of the requests of a cluster."""

    workload: str
    nodes: int
    policy: str
    node_bytes: int
    requests: int
    admitted: int
    waited: int
    """Of those let in, how many had to wait."""
    waiting_seconds: float
    """Of those who waited and were let in, together."""

    @property
    def refused_share(self) -> float:
        """Of all requests."""
        return 1 - self.admitted / self.requests


def route(
    workload: Workload,
    policy: str,
    nodes: int,
    *,
    node_bytes: int | None = None,
    seed: int = 0,
    patience: float = PATIENCE_SECONDS,
) -> Routed:
    """Send `nodes` times the workload, each copy from a moment of its own, through one router."""
    limit = workload.node_bytes if node_bytes is None else node_bytes
    cluster = _Cluster(POLICIES[policy](MODELS, numpy.full(nodes, limit, numpy.int64)), workload, patience)
    for now, request, model in _arrivals(workload, nodes, numpy.random.default_rng(seed)):
        cluster.until(now)
        cluster.take(now, request, model)
    cluster.until(float("inf"))
    assert cluster.budgets.is_valid() and not cluster.budgets.total.any()
    return Routed(
        workload.name, nodes, policy, limit, nodes * len(workload), cluster.admitted, cluster.waited, cluster.seconds
    )


def _arrivals(workload: Workload, nodes: int, dice: numpy.random.Generator) -> Iterator[tuple[float, int, int]]:
    """When each request comes, which it is, and for which model. Each copy has its own order of popularity, which
    changes with time, as each node has where there is no router.
    """
    count, period = len(workload), float(workload.arrivals[-1]) + 1.0
    shifted = (workload.arrivals[None, :] + dice.random((nodes, 1)) * period) % period
    order = numpy.argsort(shifted, axis=None, kind="stable")
    times, copy = shifted.ravel()[order], order // count
    ranks = numpy.searchsorted(numpy.cumsum(POPULARITY)[:-1], dice.random(len(times)))
    fashions = numpy.argsort(dice.random((nodes, int(period // FASHION_SECONDS) + 1, MODELS)), axis=2)
    models = fashions[copy, (times // FASHION_SECONDS).astype(numpy.int64), ranks]
    for time, place, model in zip(times.tolist(), order.tolist(), models.tolist(), strict=True):
        yield time, place % count, model


class _Cluster:
    def __init__(self, budgets: Budgets, workload: Workload, patience: float) -> None:
        self.budgets, self.workload, self.patience = budgets, workload, patience
        self.queues: list[deque[tuple[int, float, int, int]]] = [deque() for _ in budgets.node_bytes]
        self.events: list[tuple[float, int, int, int, int, int]] = []
        self.gone: set[int] = set()  # those that were let in from a queue, or gave up
        self.admitted = self.waited = self.serial = 0
        self.seconds = 0.0

    def until(self, now: float) -> None:
        """All that happens before a moment."""
        while self.events and self.events[0][0] <= now:
            time, kind, serial, node, request, model = heapq.heappop(self.events)
            if kind == _GIVES_UP:
                self.gone.add(serial)
            else:
                self.budgets.add_one(node, model, -int(self.workload.nbytes[request]))
            self._serve(time, node)

    def take(self, now: float, request: int, model: int) -> None:
        """One that comes: to the node that uses least, and there behind those who wait."""
        node = int(self.budgets.total.argmin())
        self.serial += 1
        heapq.heappush(self.events, (now + self.patience, _GIVES_UP, self.serial, node, request, model))
        self.queues[node].append((self.serial, now, request, model))
        self._serve(now, node)

    def _serve(self, now: float, node: int) -> None:
        """Let in who fits, the first first; each model has its own place in the line."""
        waiting, blocked = deque[tuple[int, float, int, int]](), set[int]()
        for serial, came, request, model in self.queues[node]:
            if serial in self.gone:
                self.gone.discard(serial)
            elif model in blocked or not self.budgets.fits_one(node, model, int(self.workload.nbytes[request])):
                blocked.add(model)
                waiting.append((serial, came, request, model))
            else:
                self._let_in(now, node, serial, came, request, model)
        self.queues[node] = waiting

    def _let_in(self, now: float, node: int, serial: int, came: float, request: int, model: int) -> None:
        self.budgets.add_one(node, model, int(self.workload.nbytes[request]))
        ends = now + float(self.workload.seconds[request])
        heapq.heappush(self.events, (ends, _GOES, serial, node, request, model))
        self.admitted += 1
        self.waited += now > came
        self.seconds += now - came
