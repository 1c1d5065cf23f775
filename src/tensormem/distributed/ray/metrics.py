"""Owns: the memory of a worker on Ray's own dashboard: gauges that Ray collects and exports.

Must not know: what the numbers mean.
"""

from __future__ import annotations

import threading

from ray.util.metrics import Gauge

from tensormem.distributed.worker_stack import WorkerStack

__all__ = ["Gauges"]

_SHOWN = {
    "used": "Bytes of the node's budget that a worker has.",
    "live": "Bytes that the blocks of a worker asked for.",
    "peak": "The most bytes that the blocks of a worker asked for at once.",
    "budget": "Bytes that a node has for all its workers.",
    "fragmentation": "The part of a worker's pages that no block lies in.",
    "spilled": "Bytes that the engine keeps elsewhere for a worker.",
    "refusals": "Allocations of a worker that were refused.",
}


class Gauges:
    """Sets `tensormem_*` every `seconds`, until `close`; the first time at once."""

    def __init__(self, stack: WorkerStack, seconds: float) -> None:
        self._stack, self._seconds = stack, seconds
        self._labels = {"node": stack.node.name, "worker": stack.worker}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tensormem-gauges", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        keys = tuple(self._labels)
        gauges = {name: Gauge(f"tensormem_{name}", text, tag_keys=keys) for name, text in _SHOWN.items()}
        while True:
            now = self._stack.stats().as_dict()
            for name, gauge in gauges.items():
                gauge.set(float(now[name] or 0), tags=self._labels)
            if self._end.wait(self._seconds):
                return

    def close(self) -> None:
        """Set them no more."""
        self._end.set()
        self._thread.join()
