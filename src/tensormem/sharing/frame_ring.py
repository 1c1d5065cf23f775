"""Owns: the frame ring: one process writes frames, many read them, and none is copied.

Two files: the frames, which readers map read-only, and the control data, which all of them write. Must not know: how it
travels (channel, travel), and which slot is free (native code).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, NoReturn, Self, SupportsIndex

from tensormem import errors
from tensormem._core import RingFile, RingReader, RingWriter, Tensor, empty
from tensormem.construction import begin_construction, constructed_once
from tensormem.dtypes import DType
from tensormem.images import ImageLayout, PixelFormat
from tensormem.images.description import DESCRIPTION_BYTES
from tensormem.memories import TensorMemory
from tensormem.sharing.frame import Frame, WritableFrame
from tensormem.sharing.ways import ReadMode, WhenFull
from tensormem.sockets.descriptors import duplicate
from tensormem.tensor import from_fd

__all__ = ["FrameReader", "FrameRing"]

# Joining a ring twice from two threads would take two places. A forked child gets a new lock.
_joining = threading.Lock()


def _renew_lock() -> None:
    global _joining
    _joining = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class FrameReader(NamedTuple):
    """A process that reads a ring, as all others see it.

    >>> import os
    >>> import tensormem as tm
    >>> with tm.FrameRing(2, 4, mode="every") as ring:
    ...     ring.attach_reader()
    ...     ring.readers() == [(os.getpid(), "every", 0, 0)]
    True
    """

    pid: int
    mode: ReadMode
    taken: int
    missed: int


@constructed_once
class FrameRing:
    """Frames in shared memory: one process writes, up to 62 read, nothing is copied, and nobody waits for the dead.

    `mode` is what readers get: "latest", the newest frame; "every", each one in turn. `when_full` is what the writer
    does when `frames` frames are unread or in use: "overwrite" the oldest that nobody holds, "drop" the new one, or
    "wait". A ring goes to others through `multiprocessing`, a `Channel`, or by its two descriptors; `as_readonly()` is
    the one to give to readers: the kernel keeps them from writing frames. A process that is killed at any moment,
    writer or reader, leaves a ring that works. With `memory="dma"` the frames are one DMA-BUF, for hardware as well.
    `tag` is what the frames are called in traces and reports.

    >>> import tensormem as tm
    >>> with tm.FrameRing(3, (1080, 1920, 3), "uint8") as ring:
    ...     with ring.write() as frame:
    ...         frame.numpy()[:] = 128
    ...     with ring.read(timeout=1) as frame:
    ...         frame.number, int(frame.numpy()[0, 0, 0])
    (1, 128)
    """

    def __init__(
        self,
        frames: int,
        shape: SupportsIndex | tuple[SupportsIndex, ...] | list[SupportsIndex],
        dtype: object = "uint8",
        *,
        memory: str = "shm",
        mode: ReadMode | str = "latest",
        when_full: WhenFull | str = "overwrite",
        tag: str | None = None,
    ) -> None:
        if TensorMemory(memory) not in (TensorMemory.SHM, TensorMemory.DMA):
            raise errors.MemoryUnavailable(str(memory), "the frames of a ring are in shm or dma, which can be shared")
        self._file = RingFile.create(frames, shape, dtype, str(WhenFull.parse(when_full)), str(ReadMode.parse(mode)))
        with self._counted_control(tag):
            made = empty(self.nbytes, "uint8", memory=memory, tag=tag)
            if made.memory != memory:
                raise errors.MemoryUnavailable(str(memory), made.memory_reason)
            fd = made.clone_fd()
            try:
                self._prepare(fd, writable=made, readonly=False)
            finally:
                os.close(fd)

    @classmethod
    def for_images(
        cls,
        frames: int,
        width: SupportsIndex,
        height: SupportsIndex,
        format: PixelFormat | str = "rgb",
        *,
        pitch: SupportsIndex | None = None,
        pitch_alignment: SupportsIndex = 1,
        memory: str = "shm",
        mode: ReadMode | str = "latest",
        when_full: WhenFull | str = "overwrite",
    ) -> Self:
        """A ring whose frames have room for such a picture, and carry its description beside the pixels.

        >>> import tensormem as tm
        >>> with tm.FrameRing.for_images(3, 6, 4, "nv12", pitch=64) as ring:
        ...     with ring.write() as frame:
        ...         _ = frame.image(6, 4, "nv12", pitch=64).planes[0].fill_(7)
        ...     with ring.read(timeout=1) as frame:
        ...         frame.image
        <Image 6 x 4 nv12, pitch 64, in shm>
        """
        layout = ImageLayout.make(width, height, format, pitch=pitch, pitch_alignment=pitch_alignment)
        room = layout.nbytes + DESCRIPTION_BYTES
        return cls(frames, room, "uint8", memory=memory, mode=mode, when_full=when_full)

    @classmethod
    def attach(
        cls,
        control_fd: int,
        frames_fd: int,
        *,
        readonly: bool = False,
        mode: ReadMode | str | None = None,
        tag: str | None = None,
    ) -> Self:
        """The ring behind two descriptors, which stay the caller's: `fds` of a ring that was inherited. Checked."""
        chosen = None if mode is None else ReadMode.parse(mode)
        ring = cls.__new__(cls)
        begin_construction(ring, FrameRing)
        ring._file = RingFile.attach(control_fd)
        with ring._counted_control(tag):
            ring._prepare(frames_fd, writable=None, readonly=readonly, tag=tag)
        if chosen is not None:
            ring._mode = chosen
        return ring

    @contextmanager
    def _counted_control(self, tag: str | None) -> Iterator[None]:
        """The control data counts as the memory that it is, unless the body fails."""
        control = from_fd(self._file.fd, "uint8", self._file.nbytes, readonly=True, tag=tag)
        try:
            yield
        except BaseException:
            control.close()
            self._file.close()
            raise
        self._control: Tensor | None = control

    def _prepare(self, frames_fd: int, *, writable: Tensor | None, readonly: bool, tag: str | None = None) -> None:
        self._readonly = readonly
        self._writable = writable
        self._writer: RingWriter | None = None
        self._reader: RingReader | None = None
        self._mode = ReadMode(self._file.mode)
        readable = from_fd(frames_fd, "uint8", self.nbytes, readonly=True, tag=tag)
        self._frames_fd = duplicate(frames_fd)
        self._readable: Tensor | None = readable  # last: with it, the ring is open

    # ---- What it is ----

    @property
    def frames(self) -> int:
        """How many frames it holds."""
        return self._file.frame_count

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a frame."""
        return self._file.shape

    @property
    def dtype(self) -> DType:
        """The element type of a frame."""
        return self._file.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of all frames, each in pages of its own; one more than `frames` unless the writer waits."""
        return self._file.slot_bytes * self._file.slot_count

    @property
    def mode(self) -> ReadMode:
        """What readers get who do not say: "latest" or "every"."""
        return self._mode

    @property
    def when_full(self) -> WhenFull:
        """What the writer does when all frames are unread or in use."""
        return WhenFull(self._file.when_full)

    @property
    def readonly(self) -> bool:
        """Whether this end may only read."""
        return self._readonly

    @property
    def published(self) -> int:
        """The number of the newest frame; 0 when there is none yet."""
        return self._file.latest

    @property
    def dropped(self) -> int:
        """How many frames the writer finished and had to drop, because all others were unread or in use."""
        return self._file.dropped

    @property
    def writer_pid(self) -> int:
        """The process that writes, or wrote last; 0 when none has."""
        return self._file.writer_pid

    def readers(self) -> list[FrameReader]:
        """Who has joined. A dead one is in the list until its place or its frames are needed."""
        return [
            FrameReader(pid, ReadMode.EVERY if every else ReadMode.LATEST, taken, missed)
            for pid, every, taken, missed in self._file.readers()
        ]

    # ---- Writing ----

    def attach_writer(self) -> None:
        """Become the writer, as `write` does: the first, or after another died or closed the ring; else `RingBusy`."""
        self._check_open()
        if self._readonly:
            raise errors.InvalidArgument("this end of the ring may only read")
        with _joining:
            if self._writer is None or self._writer.forked:
                self._writer = RingWriter(self._file)
            if self._writable is None:
                self._writable = from_fd(self._frames_fd, "uint8", self.nbytes)

    def write(self, timeout: float | None = None) -> WritableFrame:
        """The next frame, to be filled in a `with`. With `when_full="wait"` it may have to wait: `TimedOut`."""
        if self._writer is None or self._writer.forked or self._writable is None:
            self.attach_writer()
        writer, writable = self._writer, self._writable
        if writer is None or writable is None:
            raise _closed()  # by another thread
        slot = writer.begin(timeout)
        try:
            return WritableFrame(self._file, writable, writer, slot)
        except BaseException:
            writer.abandon()
            raise

    # ---- Reading ----

    def attach_reader(self, mode: ReadMode | str | None = None) -> None:
        """Join as a reader, from the newest frame on; in "every" mode, all that follow are kept. `read` does it too."""
        self._check_open()
        chosen = self._mode if mode is None else ReadMode.parse(mode)
        with _joining:
            if self._reader is None or self._reader.forked or chosen is not self._mode:
                self._reader = RingReader(self._file, str(chosen))
                self._mode = chosen

    def read(self, timeout: float | None = None, *, wait_for_writer: bool = False) -> Frame:
        """The next frame, to be used in a `with`.

        `TimedOut` when none came; `EndOfFrames` when the writer closed the ring and `WriterGone` when it died, each
        after all its frames were read. With `wait_for_writer`, those two wait for a new writer instead.
        """
        if self._reader is None or self._reader.forked:
            self.attach_reader()
        reader, readable = self._reader, self._readable
        if reader is None or readable is None:
            raise _closed()  # by another thread
        return Frame(self._file, readable, reader.take(readable, timeout, wait_for_writer))

    def __iter__(self) -> Iterator[Frame]:
        """Frames until the writer closes the ring. Each is given back when the next one is asked for."""
        while True:
            try:
                frame = self.read()
            except errors.EndOfFrames:
                return
            with frame:
                yield frame

    # ---- Sharing and closing ----

    def as_readonly(self, mode: ReadMode | str | None = None) -> FrameRing:
        """Another end of the same ring that may only read, held to it by the kernel; a reader of its own, in `mode`."""
        control, frames = self.clone_fds(readonly=True)
        try:
            return FrameRing.attach(control, frames, readonly=True, mode=self._mode if mode is None else mode)
        finally:
            os.close(control)
            os.close(frames)

    @property
    def fds(self) -> tuple[int, int]:
        """The two descriptors, control and frames, for a process that inherits them; they stay the ring's."""
        self._check_open()
        return self._file.fd, self._frames_fd

    def clone_fds(self, readonly: bool = False) -> list[int]:
        """Duplicates of the two descriptors, which are the caller's; the frames' read-only if asked or if ours is."""
        self._check_open()
        assert self._readable is not None
        # A DMA-BUF has no descriptor that may only be read: there, a reader is held to it by its own mapping alone.
        enforced = (readonly or self._readonly) and self._readable.memory == TensorMemory.SHM
        frames = self._readable.clone_fd(readonly=True) if enforced else duplicate(self._frames_fd)
        try:
            return [duplicate(self._file.fd), frames]
        except errors.TensormemError:
            os.close(frames)
            raise

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self._readable is None

    def close(self) -> None:
        """Leave the ring. Where this is the writer, readers are told that no frame follows. Frames in use stay.

        Whoever waits in `read` or `write` of this end gets `UseAfterRelease`.
        """
        if self.closed:
            return
        writer, self._writer = self._writer, None
        reader, self._reader = self._reader, None
        if writer is not None:
            writer.end()
            writer.close()
        if reader is not None:
            reader.close()
        self._readable = self._writable = self._control = None
        self._file.close()
        os.close(self._frames_fd)

    def _check_open(self) -> None:
        if self.closed:
            raise _closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Without a word to the readers: only `close` says that the writer is done.
        if getattr(self, "_readable", None) is not None:
            self._readable = self._control = None
            os.close(self._frames_fd)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a frame ring travels as an argument of a multiprocessing process, over a Channel, or by `fds`")

    def __repr__(self) -> str:
        if self.closed:
            return "<FrameRing closed>"
        counts = f"{self.published} published, {self.dropped} dropped"
        return f"<FrameRing of {self.frames} x {self.shape} {self.dtype}: {counts}>"


def _closed() -> errors.UseAfterRelease:
    return errors.UseAfterRelease(0, what="this end of the frame ring was closed")
