"""Owns: the memory of a worker on Dask's own dashboards: in its heartbeats to the scheduler, and on the `/metrics` page
of its HTTP server for Prometheus, where `prometheus_client` is installed.

Must not know: what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distributed import Worker

from tensormem.distributed.dask import internals
from tensormem.distributed.worker_stack import WorkerStack

__all__ = ["add_metrics", "remove_metrics"]

NAME = "tensormem"
SHOWN = ("used", "live", "peak", "budget", "fragmentation", "spilled", "refusals")


class _Collector:
    def __init__(self, stack: WorkerStack) -> None:
        self.stack = stack

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        now = self.stack.stats().as_dict()
        for name in SHOWN:
            gauge = GaugeMetricFamily(f"tensormem_{name}", f"tensormem: {name}", labels=["node", "worker"])
            gauge.add_metric([now["node"], now["worker"]], float(now[name] or 0))
            yield gauge


_collectors: dict[str, tuple[Any, _Collector]] = {}  # by the worker's id: several may live in one process


def add_metrics(worker: Worker, stack: WorkerStack) -> None:
    """From now on, the worker's heartbeats and pages have what its stack has."""
    internals.add_to_heartbeats(worker, NAME, lambda: stack.stats().as_dict())
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return
    collector = _Collector(stack)
    REGISTRY.register(collector)
    _collectors[worker.id] = REGISTRY, collector


def remove_metrics(worker: Worker) -> None:
    """And no longer."""
    internals.remove_from_heartbeats(worker, NAME)
    registry, collector = _collectors.pop(worker.id, (None, None))
    if registry is not None:
        registry.unregister(collector)
