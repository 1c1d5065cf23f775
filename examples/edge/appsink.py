"""Owns: frames of a GStreamer pipeline as tensors over GStreamer's own memory, by its C libraries and no binding.

A frame keeps its sample, and with it the memory, until the last tensor, array or view over it is gone.
Must not know: what becomes of frames.
"""

from __future__ import annotations

import ctypes
from ctypes.util import find_library
from types import TracebackType
from typing import Any

import tensormem as tm

_READ = 1
_PLAYING, _NULL = 4, 1


class _Map(ctypes.Structure):
    """struct GstMapInfo of gstmemory.h."""

    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("maxsize", ctypes.c_size_t),
        ("more", ctypes.c_void_p * 8),
    )


def _load(name: str) -> Any:
    found = find_library(name)
    if found is None:
        raise OSError(f"lib{name} is not installed (apt-get install libgstreamer-plugins-base1.0-0)")
    return ctypes.CDLL(found)


class _Libraries:
    def __init__(self) -> None:
        self.gst, self.app = _load("gstreamer-1.0"), _load("gstapp-1.0")
        for function in ("gst_parse_launch", "gst_bin_get_by_name", "gst_sample_get_buffer"):
            getattr(self.gst, function).restype = ctypes.c_void_p
        self.app.gst_app_sink_try_pull_sample.restype = ctypes.c_void_p
        self.gst.gst_init(None, None)


class Mapped:
    """A sample whose memory is mapped to read; what owns the memory of a tensor."""

    def __init__(self, libraries: _Libraries, sample: int) -> None:
        self._gst, self._sample, self._map = libraries.gst, ctypes.c_void_p(sample), _Map()
        self._buffer = ctypes.c_void_p(self._gst.gst_sample_get_buffer(self._sample))
        if not self._gst.gst_buffer_map(self._buffer, ctypes.byref(self._map), _READ):
            self._gst.gst_mini_object_unref(self._sample)
            raise BufferError("GStreamer does not map this buffer to read")
        self.address, self.nbytes = int(self._map.data), int(self._map.size)

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self._gst.gst_buffer_unmap(self._buffer, ctypes.byref(self._map))
            self._gst.gst_mini_object_unref(self._sample)


class Pipeline:
    """A pipeline that ends in `appsink name=out`. Its frames come by `read`, each a flat read-only tensor."""

    def __init__(self, description: str) -> None:
        self._libraries = _Libraries()
        gst, error = self._libraries.gst, ctypes.c_void_p()
        self._pipeline = ctypes.c_void_p(gst.gst_parse_launch(description.encode(), ctypes.byref(error)))
        if error.value or not self._pipeline.value:
            raise ValueError(f"GStreamer does not understand {description!r}")
        self._sink = ctypes.c_void_p(gst.gst_bin_get_by_name(self._pipeline, b"out"))
        gst.gst_element_set_state(self._pipeline, _PLAYING)

    def read(self, timeout: float = 10.0) -> tm.Tensor | None:
        """The next frame, without a copy; None at the end of the stream."""
        app = self._libraries.app
        sample = app.gst_app_sink_try_pull_sample(self._sink, ctypes.c_uint64(int(timeout * 1e9)))
        if not sample:
            if app.gst_app_sink_is_eos(self._sink):
                return None
            raise TimeoutError(f"no frame in {timeout} s")
        frame = Mapped(self._libraries, sample)
        return tm.from_pointer(frame.address, frame.nbytes, owner=frame, readonly=True)

    def close(self) -> None:
        """Stop the pipeline. Frames that are out stay valid. Calling it twice is harmless."""
        if self._pipeline.value:
            gst = self._libraries.gst
            gst.gst_element_set_state(self._pipeline, _NULL)
            gst.gst_object_unref(self._sink)
            gst.gst_object_unref(self._pipeline)
            self._pipeline = ctypes.c_void_p()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
