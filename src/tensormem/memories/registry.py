"""Owns: which kinds of memory this process knows, and how each one makes a storage.

A kind of your own comes in by `register_memory`, or by itself: the entry points of group `tensormem.memories` are
looked at when a kind is asked for that nobody has registered yet. Must not know: any single kind but `mem`, which
always works; the others are modules here, imported when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, SupportsIndex

from tensormem import errors
from tensormem._core import Storage, StreamLike, adopt_storage
from tensormem.config import get_config
from tensormem.drivers import resolve
from tensormem.entry_points import entry_points
from tensormem.memories import mem
from tensormem.memories.kinds import TensorMemory
from tensormem.mr import DeviceMemoryResource, get_kind_resource
from tensormem.spaces import main

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike
    from tensormem.gl import GlContext

__all__ = [
    "MemoryProvider",
    "allocate",
    "allocate_kind",
    "find_provider",
    "providers",
    "register_memory",
    "unregister_memory",
]

GROUP = "tensormem.memories"


MemoryProvider = Callable[..., Storage]
"""What makes storages of one kind: called with a size, a space and options; raises `MemoryUnavailable` if it cannot."""

_providers: dict[str, MemoryProvider] = {TensorMemory.MEM: mem.allocate}
# Kinds of ours: the module whose `allocate` is the provider, and whose `why_not`, if it has one, says what is missing.
_BUILT_IN: dict[str, str] = {
    TensorMemory.DMA: "tensormem.memories.dma",
    TensorMemory.PBO: "tensormem.memories.pbo",
    TensorMemory.SHM: "tensormem.memories.shm",
}
_COMMON = ("mr", "stream", "alignment", "tag")  # what every kind takes
_OPTIONS: dict[str, tuple[str, ...]] = {
    TensorMemory.MEM: (),
    TensorMemory.DMA: ("heap", "name"),
    TensorMemory.PBO: ("context", "persistent", "usage"),
    TensorMemory.SHM: ("peers", "huge_pages"),
}


def register_memory(kind: str, provider: MemoryProvider) -> TensorMemory:
    """Say how storages of `kind` are made; gives the value that names it.

    >>> kind = register_memory("toy", mem.allocate)
    >>> str(allocate(16, kind).memory)
    'mem'
    >>> unregister_memory(kind)
    """
    named = TensorMemory.introduce(kind)
    if not callable(provider):
        raise errors.InvalidArgument(f"a provider of memory is called; {type(provider).__name__} cannot be")
    if _providers.setdefault(named, provider) is not provider:
        raise errors.InvalidArgument(f"{named} is already registered; unregister it first")
    return named


def unregister_memory(kind: TensorMemory | str) -> None:
    """Say that `kind` cannot be made any more; what was made stays. `mem` cannot go."""
    named = TensorMemory(kind)
    if named is TensorMemory.MEM or named in _BUILT_IN:
        raise errors.InvalidArgument(f"{named} is ours and cannot be unregistered")
    if _providers.pop(named, None) is None:
        raise errors.InvalidArgument(f"{named} is not registered")


def providers() -> list[TensorMemory]:
    """The kinds that can be asked for, those of installed packages included."""
    for kind in [*_BUILT_IN, *(point.name for point in entry_points(group=GROUP))]:
        _introduce(kind)
    return sorted(TensorMemory(kind) for kind in list(_providers))


def allocate(
    nbytes: SupportsIndex,
    memory: TensorMemory | str = TensorMemory.MEM,
    space: WhereLike = main,
    *,
    mr: DeviceMemoryResource | None = None,
    stream: StreamLike | None = None,
    alignment: SupportsIndex | None = None,
    tag: str | None = None,
    peers: str | None = None,
    huge_pages: bool | None = None,
    heap: str | None = None,
    name: str | None = None,
    context: GlContext | None = None,
    persistent: bool | None = None,
    usage: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Storage:
    """A storage of the kind asked for, never of another. `MemoryUnavailable` says why not, and what to do.

    Only `TENSORMEM_FORCE_MEM=1` is stronger: then everything is plain memory, and the storage's `reason` says so.
    `peers` and `huge_pages` are of `shm`, `heap` and `name` of `dma`, `context`, `persistent` and `usage` of `pbo`;
    another kind refuses them. `options` are further arguments for a kind of your own.

    >>> allocate(64, "mem").nbytes
    64
    """
    said: dict[str, Any] = {
        "mr": mr,
        "stream": stream,
        "alignment": alignment,
        "tag": tag,
        "peers": peers,
        "huge_pages": huge_pages,
    }
    said |= {"heap": heap, "name": name, "context": context, "persistent": persistent, "usage": usage}
    return allocate_kind(nbytes, memory, space, said | dict(options or {}))


def allocate_kind(
    nbytes: SupportsIndex, memory: TensorMemory | str, space: WhereLike, options: Mapping[str, Any]
) -> Storage:
    """`allocate`, with its named arguments in one mapping; None is what was not said."""
    options = {name: value for name, value in options.items() if value is not None}
    provider = _providers.get(memory) or find_provider(memory)
    for name in options:
        _check_option(name, memory)
    if provider is mem.allocate:
        return mem.allocate(nbytes, space, **options)
    if get_config().force_mem:
        return _forced(nbytes, str(memory), space, options)
    storage = provider(nbytes, main if space is main else resolve(space).space, **options)
    return storage if memory in _BUILT_IN else _counted(storage, str(memory), options)


def _check_option(name: str, memory: TensorMemory | str) -> None:
    """A kind of ours takes its own options; what another kind takes is for that one to say."""
    if memory in _OPTIONS and name not in _COMMON and name not in _OPTIONS[memory]:
        homes = [str(kind) for kind, names in _OPTIONS.items() if name in names]
        meant = f"; it is one of {' and '.join(homes)}" if homes else ""
        raise errors.InvalidArgument(f"{name} is not an option of {memory} memory{meant}")


def _counted(storage: Storage, kind: str, options: Mapping[str, Any]) -> Storage:
    """What a provider of somebody else's made is counted like every other memory, unless a resource does already."""
    named = {name: options[name] for name in ("stream", "tag") if name in options}
    counted: Storage = adopt_storage(get_kind_resource(kind), storage, **named)
    return counted


def _forced(nbytes: SupportsIndex, asked: str, space: WhereLike, options: Mapping[str, Any]) -> Storage:
    kept = {name: value for name, value in options.items() if name in _COMMON}
    storage = mem.allocate(nbytes, space, **kept)
    storage.reason = f"TENSORMEM_FORCE_MEM is set; {asked} was asked for"
    return storage


def find_provider(memory: TensorMemory | str) -> MemoryProvider:
    """What makes storages of a kind; `MemoryUnavailable` where nothing does, `InvalidMemoryType` for what is no kind.

    >>> find_provider("mem") is mem.allocate
    True
    """
    kind = memory if isinstance(memory, TensorMemory) else _named(memory)
    provider = _providers.get(kind) or _introduce(kind)
    if provider is None:
        raise errors.MemoryUnavailable(str(kind), "nothing here makes it")
    return provider


def _named(text: str) -> TensorMemory:
    try:
        return TensorMemory(text)
    except errors.InvalidMemoryType:
        if _introduce(text) is None:
            raise
        return TensorMemory(text)


def _introduce(kind: str) -> MemoryProvider | None:
    """The provider of a kind of ours, or the one that an installed package offers under this name."""
    known = _providers.get(kind)
    if known is not None:
        return known
    if kind in _BUILT_IN:
        return _providers.setdefault(TensorMemory(kind), import_module(_BUILT_IN[kind]).allocate)
    for point in entry_points(group=GROUP, name=str(kind)):
        named = TensorMemory.introduce(point.name)
        return _providers.setdefault(named, point.load())
    return None
