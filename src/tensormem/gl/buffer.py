"""Owns: `PixelBuffer`, memory of OpenGL that the CPU reaches while it is mapped: one map at a time, or mapped for ever.

It is the owner of a storage of kind `pbo`: `begin_access` and `end_access` are the two halves of a map. Must not know:
storages, tensors, textures.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from tensormem import errors
from tensormem.construction import constructed_once
from tensormem.gl import constants as c
from tensormem.gl.calls import ALLOCATING
from tensormem.gl.context import GlContext
from tensormem.gl.fence import GlFence

__all__ = ["PixelBuffer"]

_BITS: Final = {"r": c.GL_MAP_READ_BIT, "w": c.GL_MAP_WRITE_BIT, "rw": c.GL_MAP_READ_BIT | c.GL_MAP_WRITE_BIT}
_USAGES: Final = {"upload": c.GL_STREAM_DRAW, "download": c.GL_STREAM_READ, "both": c.GL_DYNAMIC_DRAW}
_STAYING: Final = c.GL_MAP_READ_BIT | c.GL_MAP_WRITE_BIT | c.GL_MAP_PERSISTENT_BIT | c.GL_MAP_COHERENT_BIT
# Not yet released. Without this root, a collector that finds a storage in a cycle would empty its buffer first.
_live: set[PixelBuffer] = set()
_TARGET: Final = c.GL_COPY_WRITE_BUFFER  # a place to bind it that means nothing else


@constructed_once
class PixelBuffer:
    """A buffer object of OpenGL. `persistent` ones keep one address from beginning to end, and may be used meanwhile.

    Whoever makes one releases it; a storage does.

    >>> from tensormem.gl import why_not
    >>> if why_not() is None:
    ...     buffer = PixelBuffer(4096, GlContext.default(), persistent=False)
    ...     address = buffer.begin_access("w")
    ...     buffer.end_access("w")
    ...     buffer.release()
    """

    def __init__(
        self, nbytes: int, context: GlContext, *, persistent: bool, usage: str = "both", label: str = ""
    ) -> None:
        if usage not in _USAGES:
            raise errors.InvalidArgument(f"usage is one of {', '.join(_USAGES)}, not {usage!r:.40}")
        if persistent and context.storage_call is None:
            raise errors.NotSupported(f"buffers that stay mapped, by {context!r}")
        self.nbytes, self.context, self.persistent, self.usage = nbytes, context, persistent, usage
        self.label = label
        self._site = context.site
        self.address = 0
        """Where the bytes are; 0 while they are nowhere."""
        self._mapped = threading.Lock()  # held while there is a map; only ever tried, never waited for
        self._last_read: GlFence | None = None
        self._last_write: GlFence | None = None
        self.name: int = 0
        _live.add(self)
        try:
            context.run(self._make)
        except BaseException:
            self.release()
            raise

    # ---- For whoever uses the bytes by CPU ----

    @property
    def mapped(self) -> bool:
        """Whether it has a map that keeps OpenGL from using it; a persistent one never has."""
        return self._mapped.locked()

    @property
    def thread_bound(self) -> bool:
        """Whether an access can begin only on the thread that has the context current, as with one of somebody else."""
        return self.context.foreign

    def begin_access(self, mode: str) -> int:
        """Make the bytes reachable: waits for what OpenGL still does with them, and gives their address."""
        if self._site.gone is not None:
            self._check_connected()
        if self.persistent:
            if self._last_write is not None or self._last_read is not None:
                self._settle(mode)
            return self.address
        return self._begin_map(mode)

    def _begin_map(self, mode: str) -> int:
        if not self._take_map():
            raise errors.PboMapped(self.name)
        try:
            self.context.run(self._map, mode)
        except BaseException:
            self._abandon()
            raise
        self._last_read = self._last_write = None  # mapping waited for them
        return self.address

    def _take_map(self) -> bool:
        if self._mapped.acquire(blocking=False):
            return True
        self._site.drain()  # an end that another thread posted may be waiting for this one
        return self._mapped.acquire(blocking=False)

    def end_access(self, mode: str) -> None:
        """Give the bytes back to OpenGL. Where the context is gone there is nobody to give them to."""
        if self.persistent:
            return
        try:
            self._site.call_last(self._unmap)
        except errors.PboDisconnected:
            self._forget()

    def release(self) -> None:
        """Delete the buffer, on the thread of its context; once."""
        try:
            _live.remove(self)
        except KeyError:
            return
        self._site.post(self._delete)
        if self.context.gone is not None:
            self._forget()

    # ---- For whoever uses them by OpenGL ----

    def check_usable(self) -> None:
        """Raise `PboMapped` while the CPU has it, `PboDisconnected` if the context is gone."""
        self._check_connected()
        if self.mapped:
            self._site.drain()
        if self.mapped:
            raise errors.PboMapped(self.name, what="OpenGL cannot use it meanwhile")

    def mark_read(self) -> None:
        """OpenGL was just told to read the bytes: whoever writes them next waits for that."""
        self._last_read = self._fence()

    def mark_written(self) -> None:
        """OpenGL was just told to write the bytes: whoever touches them next waits for that."""
        self._last_write = self._fence()

    def _fence(self) -> GlFence | None:
        try:
            return GlFence(self.context)
        except errors.DriverError:  # what cannot be asked later has to be over now
            self.context.calls("glFinish")
            return None

    @property
    def busy(self) -> bool:
        """Whether OpenGL still reads or writes the bytes."""
        return any(fence is not None and not fence.done for fence in (self._last_read, self._last_write))

    def _settle(self, mode: str) -> None:
        written, read = self._last_write, self._last_read
        if written is not None:
            written.wait()
            if self._last_write is written:
                self._last_write = None
        if read is not None and "w" in mode:
            read.wait()
            if self._last_read is read:
                self._last_read = None

    def _check_connected(self) -> None:
        gone = self.context.gone
        if gone is not None:
            raise errors.PboDisconnected(gone, what=f"pixel buffer {self.name}")

    # ---- On the thread of the context ----

    def _make(self) -> None:
        calls = self.context.calls
        with calls.borrowed(ALLOCATING):
            self.name = calls.new("glGenBuffers")
            self.context.buffers.add(self.name)
            calls("glBindBuffer", _TARGET, self.name)
            if self.persistent:
                flags = _STAYING | c.GL_DYNAMIC_STORAGE_BIT
                calls(self.context.storage_call or "", _TARGET, self.nbytes, None, flags)
                self._reach(calls("glMapBufferRange", _TARGET, 0, self.nbytes, _STAYING))
            else:
                calls("glBufferData", _TARGET, self.nbytes, None, _USAGES[self.usage])
            calls("glBindBuffer", _TARGET, 0)

    def _map(self, mode: str) -> None:
        calls = self.context.calls
        self._check_exists()
        if self.context.has_named_maps:
            self._reach(calls("glMapNamedBufferRange", self.name, 0, self.nbytes, _BITS[mode]))
            return
        with calls.borrowed(ALLOCATING):
            calls("glBindBuffer", _TARGET, self.name)
            self._reach(calls("glMapBufferRange", _TARGET, 0, self.nbytes, _BITS[mode]))
            calls("glBindBuffer", _TARGET, 0)

    def _reach(self, address: int | None) -> None:
        if not address:
            raise errors.DriverError(0, "NULL", "no address and no error were given", "glMapBufferRange", "gl")
        self.address = address
        self._site.held.add(self.name)

    def _unmap(self) -> None:
        try:
            if self.context.has_named_maps:
                intact = bool(self.context.calls("glUnmapNamedBuffer", self.name))
            else:
                intact = self._unmap_bound()
        finally:
            self._forget()
        if not intact:
            raise errors.DriverError(0, "GL_FALSE", "the contents were lost while mapped", "glUnmapBuffer", "gl")

    def _unmap_bound(self) -> bool:
        calls = self.context.calls
        with calls.borrowed(ALLOCATING):
            calls("glBindBuffer", _TARGET, self.name)
            intact = calls("glUnmapBuffer", _TARGET)
            calls("glBindBuffer", _TARGET, 0)
        return bool(intact)

    def _abandon(self) -> None:
        """A map did not come about, or came about for somebody who was interrupted."""
        if self.address:
            self._site.post(self._unmap)
        else:
            self._mapped.release()

    def _delete(self) -> None:
        # Deleting a buffer unmaps it; a name of 0 is ignored by OpenGL.
        try:
            self.context.calls.delete("glDeleteBuffers", self.name)
        finally:
            self.context.buffers.discard(self.name)
            self._forget()

    def _check_exists(self) -> None:
        """A context of somebody else may have gone and another one may have got its handle."""
        if self.context.foreign and not self.context.calls("glIsBuffer", self.name):
            raise errors.PboDisconnected("the context has no such buffer", what=f"pixel buffer {self.name}")

    def _forget(self) -> None:
        self.address = 0
        self._site.let_go(self.name)
        with suppress(RuntimeError):  # somebody else was first
            self._mapped.release()

    def __repr__(self) -> str:
        kind = "persistent" if self.persistent else "mapped" if self.mapped else "not mapped"
        label = f" {self.label!r}" if self.label else ""
        return f"<PixelBuffer {self.name}{label}: {self.nbytes} bytes, {kind}, of {self.context!r}>"
