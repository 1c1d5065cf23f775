"""Owns: beginning anew, and who wants to know of it first. Must not know: which resource serves a device."""

import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from tensormem.rmm import mr
from tensormem.rmm.pylibrmm.memory_resource.per_device import initialize

__all__ = ["RMMError", "is_initialized", "register_reinitialize_hook", "reinitialize", "unregister_reinitialize_hook"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class RMMError(Exception):
    """An error with a number, for code that catches it. Nothing here raises it: our errors are `tensormem.errors`.

    >>> RMMError(2, "out of memory").errcode
    2
    """

    def __init__(self, errcode: int, msg: str) -> None:
        super().__init__(msg)
        self.errcode = errcode


_lock = threading.Lock()
_hooks: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []


def reinitialize(
    pool_allocator: bool = False,
    managed_memory: bool = False,
    initial_pool_size: int | str | None = None,
    maximum_pool_size: int | str | None = None,
    devices: int | list[int] | None = 0,
    logging: bool = False,
    log_file_name: str | None = None,
) -> None:
    """Give each of `devices` a new resource: plain memory, or a pool of it, managed or logged as asked.

    Functions that `register_reinitialize_hook` knows are called first. Memory that is out stays valid.

    >>> from tensormem import rmm
    >>> rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB", maximum_pool_size="8MiB")
    >>> rmm.mr.get_current_device_resource().pool_size()
    1048576
    >>> rmm.reinitialize()
    """
    with _lock:
        hooks = list(reversed(_hooks))
    for function, args, kwargs in hooks:
        function(*args, **kwargs)
    initialize(pool_allocator, managed_memory, initial_pool_size, maximum_pool_size, devices, logging, log_file_name)


def is_initialized() -> bool:
    """Whether there is a resource to allocate from; there always is one."""
    return mr.is_initialized()


def register_reinitialize_hook(func: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Callable[_P, _R]:
    """Call `func` with these arguments before each `reinitialize`, the latest registered first; gives `func`."""
    with _lock:
        _hooks.append((func, args, kwargs))
    return func


def unregister_reinitialize_hook(func: Callable[..., Any]) -> None:
    """Call `func` no longer, however often it was registered."""
    with _lock:
        _hooks[:] = [hook for hook in _hooks if hook[0] != func]
