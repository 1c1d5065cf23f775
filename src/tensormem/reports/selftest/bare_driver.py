"""Owns: a vendor's driver called as C does, beside tensormem: to compare times, and to begin captures.

Must not know: tensormem's own drivers.
"""

from __future__ import annotations

import ctypes

from tensormem.reports.selftest.promise import Broken, NotOffered

__all__ = ["BareDriver"]

# What each vendor calls a thing; CUDA's symbols have the number of their form.
_NAMES = {
    "cuda": {
        "allocate": "cuMemAlloc_v2",
        "free": "cuMemFree_v2",
        "allocate_async": "cuMemAllocAsync",
        "free_async": "cuMemFreeAsync",
        "synchronize": "cuStreamSynchronize",
        "begin_capture": "cuStreamBeginCapture_v2",
        "end_capture": "cuStreamEndCapture",
        "destroy_graph": "cuGraphDestroy",
        "create_stream": "cuStreamCreate",
        "destroy_stream": "cuStreamDestroy_v2",
    },
    "rocm": {
        "allocate": "hipMalloc",
        "free": "hipFree",
        "allocate_async": "hipMallocAsync",
        "free_async": "hipFreeAsync",
        "synchronize": "hipStreamSynchronize",
        "begin_capture": "hipStreamBeginCapture",
        "end_capture": "hipStreamEndCapture",
        "destroy_graph": "hipGraphDestroy",
        "create_stream": "hipStreamCreateWithFlags",
        "destroy_stream": "hipStreamDestroy",
    },
}
_NON_BLOCKING = 1


class BareDriver:
    """The functions of a vendor's library, by what they do."""

    def __init__(self, vendor: str, library: str) -> None:
        self.vendor = vendor
        self._library = ctypes.CDLL(library)
        self._contexts: dict[int, ctypes.c_void_p] = {}

    def use(self, device: int) -> None:
        """Makes a device current in this thread."""
        if self.vendor == "rocm":
            self._check("hipSetDevice", self._find("hipSetDevice")(device))
            return
        if device not in self._contexts:
            context = self._contexts[device] = ctypes.c_void_p()
            retain = self._find("cuDevicePrimaryCtxRetain")
            self._check("cuDevicePrimaryCtxRetain", retain(ctypes.byref(context), device))
        self._check("cuCtxSetCurrent", self._find("cuCtxSetCurrent")(self._contexts[device]))

    def answer(self, what: str, *arguments: object) -> int:
        """What the driver answers to a call."""
        return int(self._find(_NAMES[self.vendor][what])(*arguments))

    def call(self, what: str, *arguments: object) -> None:
        """Calls what must succeed."""
        self._check(_NAMES[self.vendor][what], self.answer(what, *arguments))

    def has(self, what: str) -> bool:
        """Whether the library has the function."""
        return hasattr(self._library, _NAMES[self.vendor][what])

    def allocate(self, nbytes: int) -> ctypes.c_uint64:
        """Plain memory of the current device."""
        address = ctypes.c_uint64()
        self.call("allocate", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address

    def allocate_async(self, nbytes: int, stream: int) -> ctypes.c_uint64:
        """Stream-ordered memory of the current device."""
        address = ctypes.c_uint64()
        self.call("allocate_async", ctypes.byref(address), ctypes.c_size_t(nbytes), ctypes.c_void_p(stream))
        return address

    def create_stream(self) -> int:
        """A stream that tensormem did not make."""
        stream = ctypes.c_void_p()
        self.call("create_stream", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        return stream.value or 0

    def destroy_stream(self, stream: int) -> None:
        """Ends one."""
        self.call("destroy_stream", ctypes.c_void_p(stream))

    def synchronize(self, stream: int) -> None:
        """Waits for one."""
        self.call("synchronize", ctypes.c_void_p(stream))

    def _find(self, name: str) -> ctypes._NamedFuncPointer:
        try:
            found: ctypes._NamedFuncPointer = getattr(self._library, name)
        except AttributeError:
            raise NotOffered(f"the library has no {name}") from None
        return found

    def _check(self, name: str, answer: int) -> None:
        if answer != 0:
            raise Broken(f"{name} answered {answer}")
