"""Owns: Dask workers of one node that hand memory to each other by descriptor instead of sending its bytes.

Every worker that takes part has a server, whose address follows from the worker's own. When one worker asks another for
data, the other tries that address first; only a worker that answers there is on the same node. Must not know: frames.
"""

from __future__ import annotations

import hashlib
import threading
import traceback
from contextvars import ContextVar
from typing import Any

from tensormem import errors
from tensormem._core import Tensor
from tensormem.distributed.dask.internals import get_data_handler, set_get_data_handler
from tensormem.distributed.delivery import Delivery
from tensormem.distributed.handover import HandOverServer
from tensormem.distributed.handover_messages import can_hand_over
from tensormem.sockets.directory import own_directory

__all__ = ["HandOverCounts", "bring", "collect", "counts", "install", "uninstall"]

_delivery: ContextVar[Delivery | None] = ContextVar("tensormem_delivery", default=None)
_lock = threading.Lock()
_servers: dict[str, HandOverServer] = {}  # of the workers of this process, by their address
_handlers: dict[str, Any] = {}  # what each of them did for `get_data` before
_wanted_by: dict[str, set[str]] = {}  # the plugins that each of them has it from


class HandOverCounts:
    """How many tensors workers of this process sent by descriptor, and collected.

    >>> HandOverCounts().sent
    0
    """

    def __init__(self) -> None:
        self.sent = 0
        self.collected = 0


counts = HandOverCounts()
"""Those of this process."""


def _address_of(worker: str) -> str:
    """Where the server of a worker is, by the worker's address.

    >>> _address_of("tcp://127.0.0.1:1234").rpartition("/")[2][:5]
    'dask-'
    """
    return f"{own_directory()}/dask-{hashlib.sha256(worker.encode()).hexdigest()[:32]}"


def install(worker: Any, plugin: str) -> bool:
    """Let a worker take part, from now on; False if it cannot. For the `setup` of the plugin of that name."""
    with _lock:
        if worker.address in _servers:
            _wanted_by[worker.address].add(plugin)
            return True
        try:
            _servers[worker.address] = HandOverServer(_address_of(worker.address))
        except (errors.DriverError, errors.SharingError):  # there is no place for it, or it is taken: bytes it is
            return False
        _wanted_by[worker.address] = {plugin}
        before = _handlers[worker.address] = get_data_handler(worker)
        set_get_data_handler(worker, _delivering(worker, before))
        return True


def uninstall(worker: Any, plugin: str) -> None:
    """The plugin of that name has gone: without another one, the worker takes part no more. Once or many times."""
    with _lock:
        wanted = _wanted_by.get(worker.address, set())
        wanted.discard(plugin)
        if wanted:
            return
        _wanted_by.pop(worker.address, None)
        server = _servers.pop(worker.address, None)
        before = _handlers.pop(worker.address, None)
    if before is not None:
        set_get_data_handler(worker, before)
    if server is not None:
        server.close()


def _delivering(worker: Any, get_data: Any) -> Any:
    """The handler that gives data to another worker, with a delivery to it under way if it is on this node."""

    async def deliver(comm: Any, keys: Any, who: str | None = None, serializers: Any = None) -> Any:
        if who is None or not _on_this_host(who, worker.address):
            return await get_data(comm, keys=keys, who=who, serializers=serializers)
        # It ends with the transfer, however that ends: what was not collected by then never will be.
        with Delivery(_address_of(who)) as delivery:
            before = _delivery.set(delivery)
            try:
                return await get_data(comm, keys=keys, who=who, serializers=serializers)
            except Exception as error:
                _forget_variables(error)
                raise
            finally:
                _delivery.reset(before)

    return deliver


def _forget_variables(error: BaseException | None) -> None:
    """Dask keeps its log records, and with them the variables of what failed: the memory that was to be sent."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _on_this_host(who: str, mine: str) -> bool:
    from distributed.comm import get_address_host

    return bool(get_address_host(who) == get_address_host(mine))


def bring(tensor: Tensor) -> str | None:
    """The token under which the worker that asked can collect a tensor; None if it has to be sent."""
    delivery = _delivery.get()
    if delivery is None or not can_hand_over(tensor):
        return None
    token = delivery.bring(tensor)
    if token is not None:
        with _lock:
            counts.sent += 1
    return token


def collect(token: str) -> Tensor | None:
    """What was brought to a worker of this process under a token; None if nothing was, or no longer is."""
    with _lock:
        servers = list(_servers.values())
    for server in servers:
        tensor = server.collect(token)
        if tensor is not None:
            with _lock:
                counts.collected += 1
            return tensor
    return None
