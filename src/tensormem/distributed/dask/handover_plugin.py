"""Owns: the plugin by which Dask workers learn to hand memory over. Must not know: how it is done."""

from __future__ import annotations

from typing import Any

from distributed import WorkerPlugin

from tensormem.distributed.dask import handover

__all__ = ["HandOverPlugin"]


class HandOverPlugin(WorkerPlugin):  # type: ignore[misc]
    """Workers of one node pass tensors of shm and dma memory by descriptor: `client.register_plugin(HandOverPlugin())`.

    Tensors of other memory, and those for other nodes, go as Dask sends them.

    >>> HandOverPlugin().name
    'tensormem-handover'
    """

    name = "tensormem-handover"
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Called by Dask on each worker."""
        handover.install(worker, self.name)

    def teardown(self, worker: Any) -> None:
        """Called by Dask when the worker ends."""
        handover.uninstall(worker, self.name)
