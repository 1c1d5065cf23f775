"""Owns: the set-up of Dask's workers: a plugin that gives each one the declared stack and takes it down again.

Must not know: how a stack is built, how values are spilled.
"""

from __future__ import annotations

from typing import Any

from distributed import Worker, WorkerPlugin

from tensormem.distributed import process_stack
from tensormem.distributed.cluster_node import Node
from tensormem.distributed.dask import handover
from tensormem.distributed.dask.metrics import add_metrics, remove_metrics
from tensormem.distributed.dask.settling import Settling
from tensormem.distributed.dask.spilling import Spilling
from tensormem.distributed.declaration import Declaration

__all__ = ["TensormemPlugin"]


class TensormemPlugin(WorkerPlugin):  # type: ignore[misc]  # Dask is not typed
    """Sets up every worker, those that come later too: `client.register_plugin(TensormemPlugin(declaration))`.

    The workers that a scheduler has on one host share one budget, and pass tensors of shm and dma memory by descriptor.
    Under pressure a worker spills by its own spill buffer. `client.unregister_worker_plugin("tensormem")` takes
    everything down.

    >>> from tensormem.distributed import Declaration
    >>> TensormemPlugin(Declaration(budget="1GiB")).name
    'tensormem'
    """

    name = "tensormem"

    def __init__(self, declaration: Declaration) -> None:
        self._text = declaration.to_json()

    async def setup(self, worker: Worker) -> None:
        """Called by Dask in each worker. What is wrong is raised to who registers the plugin."""
        declaration = Declaration.from_json(self._text)
        scheduler = await worker.scheduler.identity()
        node = Node.here("dask", f"{scheduler['id']}@{_host(worker.address)}")
        stack = process_stack.install(declaration, node, f"dask-{worker.name}")
        self._spilling = Spilling(worker, lambda: stack.live_bytes, declaration.patience)
        stack.on_pressure(self._spilling, self._spilling.spilled_bytes)
        self._settling = Settling(worker, stack.received)
        add_metrics(worker, stack)
        handover.install(worker, self.name)

    def teardown(self, worker: Worker) -> None:
        """Called by Dask when the plugin goes, or the worker. Tensors that live on count until they go."""
        stack = process_stack.installed()
        if stack is None or not hasattr(self, "_spilling"):
            return
        stack.forget(self._spilling)
        self._settling.close()
        remove_metrics(worker)
        handover.uninstall(worker, self.name)
        process_stack.uninstall(force=stack.users == 1)

    def __getstate__(self) -> dict[str, Any]:
        return {"_text": self._text}  # what a worker made of it stays there


def _host(address: str) -> str:
    """The host in an address such as `tcp://127.0.0.1:4000`."""
    return address.partition("://")[2].rpartition(":")[0]
