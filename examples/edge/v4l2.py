"""Owns: a Video4Linux camera that captures into memory of ours, or lends its own: the six calls that it takes.

The structs are those of linux/videodev2.h, declared again for 64-bit machines. Must not know: what becomes of frames.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Sequence
from select import select
from types import TracebackType
from typing import Any, NamedTuple

import tensormem as tm

CAPTURE, MMAP, DMABUF = 1, 1, 4  # of V4L2_BUF_TYPE_* and V4L2_MEMORY_*
_SET_FORMAT = 0xC0D05605
_REQUEST_BUFFERS = 0xC0145608
_QUEUE, _DEQUEUE = 0xC058560F, 0xC0585611
_EXPORT = 0xC0405610
_STREAM_ON, _STREAM_OFF = 0x40045612, 0x40045613
_FORMAT = struct.Struct("=I4x8I168x")  # type; width, height, fourcc, field, pitch, nbytes, colours, private
_BUFFER = struct.Struct("=5I4x16x16x2IQ12x4x")  # index, type, bytes used, flags, field; times; number, memory, place


class Format(NamedTuple):
    """What the driver chose: the nearest to what was asked for."""

    width: int
    height: int
    fourcc: str
    pitch: int
    nbytes: int


class Camera:
    """A capture device. Give it buffers to fill, or take its own; then `read` frames, and put each back."""

    def __init__(self, path: str, width: int, height: int, fourcc: str = "YUYV") -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        try:
            code = int.from_bytes(fourcc.encode(), "little")
            said = self._ask(_SET_FORMAT, _FORMAT, CAPTURE, width, height, code, 0, 0, 0, 0, 0)
        except BaseException:
            os.close(self._fd)
            raise
        name = int(said[3]).to_bytes(4, "little").decode()
        self.format = Format(said[1], said[2], name, said[5], said[6])
        self._memory = 0
        self._fds: list[int] = []

    def use(self, buffers: Sequence[tm.Tensor]) -> None:
        """Capture into these: tensors of DMA-BUFs, each of `format.nbytes` at least."""
        self._fds = [buffer.clone_fd() for buffer in buffers]
        self._request(DMABUF, len(buffers))

    def lend(self, count: int) -> list[tm.Tensor]:
        """The driver's own buffers as tensors over the same memory."""
        self._request(MMAP, count)
        tensors = []
        for index in range(count):
            # struct v4l2_exportbuffer { u32 type, index, plane, flags; s32 fd (out); u32 reserved[11]; }
            data = bytearray(struct.pack("=4Ii44x", CAPTURE, index, 0, os.O_RDWR | os.O_CLOEXEC, -1))
            fcntl.ioctl(self._fd, _EXPORT, data)
            fd = struct.unpack_from("=4Ii", data)[4]
            try:
                tensors.append(tm.from_fd(fd, "uint8"))
            finally:
                os.close(fd)
        return tensors

    def start(self) -> None:
        """Queue every buffer, and begin."""
        for index in range(self._count):
            self.put_back(index)
        fcntl.ioctl(self._fd, _STREAM_ON, struct.pack("=I", CAPTURE))

    def read(self, timeout: float = 10.0) -> tuple[int, int]:
        """The index of the buffer that was filled next, and the number of its frame."""
        if not select([self._fd], [], [], timeout)[0]:
            raise TimeoutError(f"no frame in {timeout} s")
        said = self._ask(_DEQUEUE, _BUFFER, 0, CAPTURE, 0, 0, 0, 0, self._memory, 0)
        return said[0], said[5]

    def put_back(self, index: int) -> None:
        """Let the camera fill a buffer again."""
        place = self._fds[index] if self._fds else 0
        self._ask(_QUEUE, _BUFFER, index, CAPTURE, 0, 0, 0, 0, self._memory, place)

    def close(self) -> None:
        """Stop, and let everything go. Calling it twice is harmless."""
        if self._fd >= 0:
            fcntl.ioctl(self._fd, _STREAM_OFF, struct.pack("=I", CAPTURE))
            for fd in (self._fd, *self._fds):
                os.close(fd)
            self._fd, self._fds = -1, []

    def __enter__(self) -> Camera:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request(self, memory: int, count: int) -> None:
        # struct v4l2_requestbuffers { u32 count, type, memory, capabilities, flags and reserved; }
        data = bytearray(struct.pack("=5I", count, CAPTURE, memory, 0, 0))
        fcntl.ioctl(self._fd, _REQUEST_BUFFERS, data)
        self._memory, self._count = memory, struct.unpack_from("=I", data)[0]
        if self._count != count:
            raise OSError(f"the driver wants {self._count} buffers and not {count}")

    def _ask(self, call: int, layout: struct.Struct, *values: int) -> tuple[Any, ...]:
        data = bytearray(layout.pack(*values))
        fcntl.ioctl(self._fd, call, data)
        return layout.unpack(data)
