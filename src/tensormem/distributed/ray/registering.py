"""Owns: telling Ray of our tensor transport. Must not know: what it does."""

from __future__ import annotations

import threading

from tensormem import errors

__all__ = ["register_transport", "transport_counts"]

_lock = threading.Lock()


def register_transport() -> None:
    """Make `tensor_transport="tensormem"` known to Ray, here and in actors made by this process from now on.

    Call it before the actors are made; a second time it does nothing.
    """
    from ray.experimental import register_tensor_transport

    from tensormem.distributed.ray.internals import transport_is_registered
    from tensormem.distributed.ray.shared_tensor import SharedTensor
    from tensormem.distributed.ray.transport import NAME, TensormemTransport

    with _lock:
        if not transport_is_registered(NAME):
            register_tensor_transport(NAME, ["cpu"], TensormemTransport, SharedTensor)


def transport_counts() -> dict[str, int]:
    """How shared tensors came to this process: by `descriptor`, without a copy, or through the `object_store`."""
    from tensormem.distributed.ray.internals import registered_transport, transport_is_registered
    from tensormem.distributed.ray.transport import NAME, TensormemTransport

    if not transport_is_registered(NAME):
        raise errors.NotSupported("counting: the transport is not registered; see register_transport")
    transport = registered_transport(NAME)
    assert isinstance(transport, TensormemTransport)
    return {"descriptor": transport.counts.descriptor, "object_store": transport.counts.object_store}
