"""Owns: streams by RMM's names: `Stream`, its flags, and the three streams that need not be made.

A `Stream` is one of ours, or a handle of another library's and what keeps it alive. Must not know: resources, buffers.
"""

from enum import IntEnum
from typing import Any

from tensormem import errors, streams
from tensormem._core import Driver
from tensormem.public_functions import explain_misspellings
from tensormem.rmm._cuda.gpu import driver_of, getDevice

__all__ = [  # noqa: RUF022 (by name alone)
    "CudaStreamFlags",
    "DEFAULT_STREAM",
    "LEGACY_DEFAULT_STREAM",
    "PER_THREAD_DEFAULT_STREAM",
    "Stream",
]

# CUDA's numbers for streams that every thread or context has.
_DEFAULT, _LEGACY, _PER_THREAD = 0, 1, 2


class CudaStreamFlags(IntEnum):
    """Whether a stream that is made waits for the default stream.

    Ours never does, whichever is asked for: the order between streams is what events say.

    >>> CudaStreamFlags.NON_BLOCKING.value
    1
    """

    SYNC_DEFAULT = 0
    NON_BLOCKING = 1


class Stream:
    """A stream of the current device: a new one, or another library's under RMM's name.

    >>> stream = Stream()
    >>> stream.synchronize()
    >>> Stream(stream) == stream, stream == DEFAULT_STREAM
    (True, False)
    """

    _handle: int
    _owner: object
    _ours: streams.Stream | None = None

    def __init__(self, obj: Any = None, flags: CudaStreamFlags | None = None) -> None:
        if obj is None:
            CudaStreamFlags(CudaStreamFlags.SYNC_DEFAULT if flags is None else flags)
            self._take(streams.Stream(driver_of(getDevice())))
            return
        if flags is not None:
            raise ValueError("flags may only be specified when obj is None: an existing stream has its own")
        if isinstance(obj, Stream):
            self._handle, self._owner, self._ours = obj._handle, obj._owner, obj._ours
        elif isinstance(obj, streams.Stream):
            self._take(obj)
        else:
            self._handle, self._owner = _handle_of(obj), obj

    def _take(self, stream: streams.Stream) -> None:
        self._handle, self._owner = (_DEFAULT if stream.is_default else stream.handle), stream
        self._ours = None if stream.is_default else stream

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol by which libraries hand streams to one another: version 0 and the handle."""
        return 0, self._handle

    def synchronize(self) -> None:
        """Wait until all work given so far is finished."""
        if self._ours is not None:
            self._ours.synchronize()
            return
        driver = driver_of(getDevice())
        if self.is_default() or driver.name == "host":
            streams.Stream.default(driver).synchronize()
            return
        with streams.Event(driver) as event:
            event.record(self)
            event.synchronize()

    def is_default(self) -> bool:
        """Whether this is the default stream, by either of its numbers."""
        return self._handle in (_DEFAULT, _LEGACY)

    def on(self, driver: Driver) -> streams.StreamLike | None:
        """This stream as `driver` takes it; None for the default stream, and where it is not one of the driver's."""
        if self.is_default() or self.is_foreign_to(driver):
            return None
        return self if self._ours is None else self._ours

    def is_foreign_to(self, driver: Driver) -> bool:
        """Whether `driver` cannot order its work with this stream's."""
        home = driver_of(getDevice()).name if self._ours is None else self._ours.driver.name
        return not self.is_default() and home != driver.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self._handle == other._handle

    def __hash__(self) -> int:
        return hash(self._handle)

    def __repr__(self) -> str:
        return f"<Stream {self._handle:#x}>"


def _handle_of(obj: Any) -> int:
    """The handle of another library's stream: by the protocol, or as older CuPy and Numba offer it."""
    if hasattr(obj, "__cuda_stream__"):
        version, handle = obj.__cuda_stream__() if callable(obj.__cuda_stream__) else obj.__cuda_stream__
        if version != 0:
            raise errors.NotSupported(f"the CUDA stream protocol version: '{version}' is not known; 0 is")
        return int(handle)
    offered = getattr(obj, "ptr", None)  # CuPy
    if offered is None:
        offered = getattr(getattr(obj, "handle", None), "value", getattr(obj, "handle", None))  # Numba
    if offered is None and hasattr(type(obj), "__int__") and not isinstance(obj, int | float):
        offered = int(obj)
    if not isinstance(offered, int):
        raise TypeError(f"a stream has __cuda_stream__ or is one of CuPy or Numba, not {type(obj).__name__}")
    return offered


class _Standing:
    """A stream that is there without being made, by its number."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


DEFAULT_STREAM = Stream(_Standing(_DEFAULT))
LEGACY_DEFAULT_STREAM = Stream(_Standing(_LEGACY))
PER_THREAD_DEFAULT_STREAM = Stream(_Standing(_PER_THREAD))

explain_misspellings(globals())
