"""Owns: one frame of a ring, in the hands of the reader who holds its slot or of the writer who fills it.

Must not know: which slot is given to whom; the ring does.
"""

from __future__ import annotations

import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, SupportsIndex

from tensormem import errors
from tensormem._core import RingFile, RingWriter, SlotHold, Storage, Tensor, host_driver
from tensormem.construction import constructed_once
from tensormem.images import Image, PixelFormat
from tensormem.images.description import DESCRIPTION_BYTES, format_description
from tensormem.memories import TensorMemory
from tensormem.spaces import main

__all__ = ["Frame", "WritableFrame"]


class _BracketedSlot:
    """The owner of a frame in memory whose CPU accesses have a beginning and an end: those are the whole buffer's."""

    def __init__(self, memory: Tensor, offset: int, hold: SlotHold | None) -> None:
        self._memory, self._offset, self._hold = memory, offset, hold

    def begin_access(self, mode: str) -> int:
        base: int = self._memory.storage.owner.begin_access(mode)
        return base + self._offset

    def end_access(self, mode: str) -> None:
        self._memory.storage.owner.end_access(mode)

    def release(self) -> None:
        if self._hold is not None:
            self._hold.release()


def _tensor(file: RingFile, memory: Tensor, slot: int, hold: SlotHold | None) -> Tensor:
    """The slot as a tensor: read-only for one who holds it, writable for the writer."""
    offset = slot * file.slot_bytes
    plain = memory.memory == TensorMemory.SHM
    storage = Storage(
        memory.ptr + offset,
        file.frame_bytes,
        owner=(hold or memory) if plain else _BracketedSlot(memory, offset, hold),
        space=main,
        memory=memory.memory,
        device=(1, 0),
        driver=host_driver(),
        readonly=hold is not None,
        id=memory.storage.id,  # parts of one memory, as views are
    )
    return Tensor(storage, file.dtype, file.shape)


def _check_room(tensor: Tensor) -> None:
    if tensor.ndim != 1 or tensor.dtype.name != "uint8" or tensor.nbytes <= DESCRIPTION_BYTES:
        raise errors.InvalidArgument(
            "frames of this ring are tensors; FrameRing.for_images makes one that carries images"
        )


@constructed_once
class Frame:
    """A frame that this process holds: nobody writes there before it is given back. Made by `FrameRing.read`.

    It is given back at the end of a `with`, by `close()`, or when it is dropped. Arrays over its memory may live
    longer: then the slot stays held until the last of them is gone, so what they show never changes.

    >>> import tensormem as tm
    >>> with tm.FrameRing(2, (2, 2), "uint8") as ring:
    ...     with ring.write() as frame:
    ...         _ = frame.tensor.fill_(5)
    ...     with ring.read(timeout=1) as frame:
    ...         frame.number, frame.dropped, frame.tensor.tolist()
    (1, 0, [[5, 5], [5, 5]])
    """

    __slots__ = ("_construction", "_tensor", "dropped", "number", "timestamp")

    number: int
    """Frames count from 1."""
    timestamp: int
    """When it was published, in nanoseconds of the monotonic clock, or what the writer set."""
    dropped: int
    """How many frames there were between the last one read here and this one."""

    def __init__(self, file: RingFile, memory: Tensor, hold: SlotHold) -> None:
        self.number, self.timestamp, self.dropped = hold.number, hold.timestamp, hold.dropped
        self._tensor: Tensor | None = _tensor(file, memory, hold.slot, hold)

    @property
    def tensor(self) -> Tensor:
        """The frame as a read-only tensor."""
        if self._tensor is None:
            raise errors.UseAfterFree(self.number, 0, what="the frame was given back")
        return self._tensor

    @property
    def image(self) -> Image:
        """The picture that the writer described in this frame; `MalformedMessage` where there is none, or not a sound
        one: a writer is not trusted."""
        tensor = self.tensor
        _check_room(tensor)
        with tensor[tensor.nbytes - DESCRIPTION_BYTES :].map("r") as tail:
            description = bytes(tail)
        return Image.from_description(tensor[: tensor.nbytes - DESCRIPTION_BYTES], description)

    def numpy(self) -> Any:
        """The frame as a read-only NumPy array, without a copy."""
        return self.tensor.numpy()

    @property
    def closed(self) -> bool:
        """Whether it was given back."""
        return self._tensor is None

    def close(self) -> None:
        """Give it back. Once or many times; `BufferError` while arrays over it live."""
        if self._tensor is not None:
            self._tensor.close()
            self._tensor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BufferError:
            self._tensor = None  # the arrays hold it now

    def __repr__(self) -> str:
        return f"<Frame {self.number}{', given back' if self.closed else ''}>"


@constructed_once
class WritableFrame:
    """The frame that is being written. Made by `FrameRing.write`: published at the end of a `with`, or abandoned there
    when the body raised.

    >>> import tensormem as tm
    >>> with tm.FrameRing(2, 4, "float32") as ring:
    ...     with ring.write() as frame:
    ...         _ = frame.tensor.fill_(0.5)
    ...     frame.number
    1
    """

    # What a frame that was never made, or not to its end, has.
    _writer: RingWriter | None = None
    _tensor: Tensor | None = None

    def __init__(self, file: RingFile, memory: Tensor, writer: RingWriter, slot: int) -> None:
        self._tensor = _tensor(file, memory, slot, None)
        self._writer = writer
        self.timestamp: int | None = None
        """In nanoseconds, for readers; None: the moment at which it is published, of the monotonic clock."""
        self.number = 0
        """Its number, once it was published; 0 before, and when it was dropped or abandoned."""

    @property
    def tensor(self) -> Tensor:
        """The frame as a tensor to write into. What is in it is an older frame, or zeros."""
        if self._tensor is None:
            raise errors.UseAfterFree(self.number, 0, what="the frame was published or abandoned")
        return self._tensor

    def image(
        self,
        width: SupportsIndex,
        height: SupportsIndex,
        format: PixelFormat | str = "rgb",
        *,
        pitch: SupportsIndex | None = None,
        pitch_alignment: SupportsIndex = 1,
    ) -> Image:
        """Describe a picture in this frame of a ring that `FrameRing.for_images` made; readers get it by `Frame.image`.

        A frame that is published without it carries the description of an older one.
        """
        tensor = self.tensor
        _check_room(tensor)
        pixels = tensor[: tensor.nbytes - DESCRIPTION_BYTES]
        made = Image(pixels, width, height, format, pitch=pitch, pitch_alignment=pitch_alignment)
        with tensor[tensor.nbytes - DESCRIPTION_BYTES :].map("w") as tail:
            memoryview(tail)[:] = format_description(made.layout)
        return made

    def numpy(self) -> Any:
        """The frame as a NumPy array to write into. Do not write into it after the `with`: others read there."""
        return self.tensor.numpy()

    def publish(self) -> int:
        """Make it the newest frame; its number, or 0 when the ring was full and it had to be dropped.

        `BufferError` while an operation of another thread uses its tensor: nobody may read what is being written.
        """
        when = time.monotonic_ns() if self.timestamp is None else self.timestamp
        if type(when) is not int or not 0 <= when < 2**64:
            raise errors.InvalidArgument(f"a timestamp is a number of nanoseconds from 0 on, not {when!r:.40}")
        writer = self._finish()
        if writer is None:
            raise errors.UseAfterFree(self.number, 0, what="the frame was published or abandoned before")
        self.number = writer.publish(when)
        return self.number

    def abandon(self) -> None:
        """Give it up: no reader sees it. Calling it twice is harmless; `BufferError` as for `publish`."""
        writer = self._finish()
        if writer is not None:
            writer.abandon()

    def _finish(self, *, forced: bool = False) -> RingWriter | None:
        if self._tensor is not None and self._tensor.storage.operation_count and not forced:
            raise BufferError(f"{self._tensor.storage!r} is a frame that an operation of another thread uses")
        writer, self._writer = self._writer, None
        tensor, self._tensor = self._tensor, None
        if tensor is not None and tensor.storage.export_count == 0:
            tensor.close()
        return writer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        if kind is None:
            self.publish()
        else:
            with suppress(BufferError):  # it is given up when it is dropped
                self.abandon()

    def __del__(self) -> None:
        if self._writer is not None:
            writer = self._finish(forced=True)
            if writer is not None:
                writer.abandon()
