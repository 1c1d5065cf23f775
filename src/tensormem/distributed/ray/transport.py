"""Owns: Ray's tensor transport "tensormem": shared tensors go by descriptor inside a node, else by the object store.

Ray tells when an object is made, wanted and no longer referred to; this offers, takes and withdraws the memory. Must
not know: how descriptors travel (handover).
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata

from tensormem import errors
from tensormem._core import Tensor
from tensormem.distributed.delivery import take
from tensormem.distributed.handover import HandOverServer
from tensormem.distributed.handover_messages import can_hand_over
from tensormem.distributed.node import this_host
from tensormem.distributed.ray.internals import call_on, registered_transport, source_of
from tensormem.distributed.ray.shared_tensor import SharedTensor

__all__ = ["NAME", "SharedCommunicator", "SharedMetadata", "TensormemTransport", "TransportCounts"]

NAME = "TENSORMEM"


@dataclass
class SharedMetadata(TensorTransportMetadata):  # type: ignore[misc]
    """What travels instead of the memory: where it is offered, and by whom.

    >>> SharedMetadata(tensor_meta=[]).by_descriptor
    False
    """

    address: str = ""
    host: str = ""
    node: str = ""
    pid: int = 0
    by_descriptor: bool = False


@dataclass
class SharedCommunicator(CommunicatorMetadata):  # type: ignore[misc]
    """The actor that has the memory, where Ray says so.

    >>> SharedCommunicator().source is None
    True
    """

    source: Any = None


@dataclass
class TransportCounts:
    """How tensors came to this process: `descriptor` without a copy, `object_store` as Ray carries them.

    >>> TransportCounts().descriptor
    0
    """

    descriptor: int = 0
    object_store: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, way: str, count: int) -> None:
        """Count tensors that came one way."""
        with self._lock:
            setattr(self, way, getattr(self, way) + count)


class TensormemTransport(TensorTransportManager):  # type: ignore[misc]
    """What Ray asks for; made by Ray, once per process.

    >>> TensormemTransport().tensor_transport_backend()
    'TENSORMEM'
    """

    def __init__(self) -> None:
        self.counts = TransportCounts()
        self._lock = threading.Lock()
        self._server: HandOverServer | None = None

    def server(self) -> HandOverServer:
        """The server of this process; made when it is first needed."""
        with self._lock:
            if self._server is None or not self._server.is_running:
                self._server = HandOverServer()
            return self._server

    def tensor_transport_backend(self) -> str:
        """Its name."""
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        """The receiver takes; the sender's own code takes no part."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """A hand-over is one short exchange: there is never one to wait for."""
        return True

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """Nothing is under way."""

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """Every actor on Linux has it."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[SharedTensor]) -> SharedMetadata:
        """Offer the tensors of a new object, until Ray says that nobody refers to it."""
        tensors = [each.tensor for each in rdt_object]
        server = self.server()
        server.offer(obj_id, tensors)
        return SharedMetadata(
            tensor_meta=[(tensor.shape, str(tensor.dtype)) for tensor in tensors],
            tensor_device="cpu",
            address=server.address,
            host=this_host(),
            node=ray.get_runtime_context().get_node_id(),
            pid=os.getpid(),
            by_descriptor=all(map(can_hand_over, tensors)),
        )

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> Any:
        """Who has the memory, for the case that it has to come through the object store."""
        return SharedCommunicator(source=src_actor)

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[Tensor]:
        """The tensors of an object: the same memory if it is within reach, else what Ray carries here."""
        if target_buffers:
            raise errors.NotSupported("receiving into buffers; the memory itself arrives")
        meta: SharedMetadata = tensor_transport_metadata
        source = communicator_metadata.source or source_of(obj_id)
        if not (meta.by_descriptor and _is_within_reach(meta)):
            return self._through_the_store(obj_id, meta, source, "")
        try:
            tensors = take(meta.address, obj_id, len(meta.tensor_meta))
        except (errors.SharingError, errors.DriverError) as refused:
            return self._through_the_store(obj_id, meta, source, str(refused))
        self.counts.add("descriptor", len(tensors))
        return tensors

    def _through_the_store(self, obj_id: str, meta: SharedMetadata, source: Any, refused: str) -> list[Tensor]:
        if source is None and not refused:
            raise errors.NotSupported("memory that a driver shares with another node; let an actor share it")
        try:
            if source is None:
                raise errors.ChannelClosed("it was the driver")
            asked = call_on(source, _fetch, obj_id)
            tensors: list[Tensor] = ray.get(asked)
        except (ray.exceptions.RayActorError, errors.ChannelClosed) as gone:
            raise errors.WorkerDied(str(meta.pid), meta.node, what=(refused or str(gone))[:300]) from gone
        self.counts.add("object_store", len(tensors))
        return tensors

    def send_multiple_tensors(self, tensors: Any, tensor_transport_metadata: Any, communicator_metadata: Any) -> None:
        """Never called: receivers take."""
        raise errors.NotSupported("sending; receivers take")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: Any) -> None:
        """Nobody refers to the object any more."""
        if self._server is not None:
            self._server.withdraw(obj_id)


def _is_within_reach(meta: SharedMetadata) -> bool:
    return bool(meta.host == this_host() and meta.node == ray.get_runtime_context().get_node_id())


def _fetch(_actor: Any, obj_id: str) -> list[Tensor]:
    """Runs on the actor that has the memory: what it returns goes through the object store."""
    transport = registered_transport(NAME)
    tensors: list[Tensor] = transport.server().offered(obj_id)
    if not tensors:
        raise errors.ChannelClosed("it is offered no more")
    return tensors
