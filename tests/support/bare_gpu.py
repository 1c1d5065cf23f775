"""Owns: a client of the simulated driver that calls it as C does, so that tests see what the driver itself answers.

Must not know: tensormem's own drivers.
"""

import ctypes
import threading
from collections.abc import Callable

from tensormem.testing.gpus import SimulatedGpu

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
INVALID_VALUE = 1
NOT_READY = 600
# What CUDA and HIP call the same thing, where the names do not differ by their first letters alone.
_HIP_NAMES = {
    "MemAlloc": "Malloc",
    "MemFree": "Free",
    "MemHostAlloc": "HostMalloc",
    "MemFreeHost": "HostFree",
    "MemHostRegister": "HostRegister",
    "MemHostUnregister": "HostUnregister",
    "MemAllocAsync": "MallocAsync",
    "MemFreeAsync": "FreeAsync",
    "StreamCreate": "StreamCreateWithFlags",
    "EventCreate": "EventCreateWithFlags",
}
_VERSIONED = {
    "MemAlloc": "_v2",
    "MemFree": "_v2",
    "MemHostRegister": "_v2",
    "StreamDestroy": "_v2",
    "StreamBeginCapture": "_v2",
    "EventDestroy": "_v2",
}


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp, and the beginning of CUmemPoolProps."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("rest", ctypes.c_uint8 * 72),
    )


class Rights(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


def properties(device: int, *, exportable: bool = False) -> Properties:
    """Memory of `device`."""
    return Properties(1, int(exportable), Location(1, device))


def rights(device: int, flags: int = 3) -> Rights:
    """What `device` may do."""
    return Rights(Location(1, device), flags)


class BareGpu:
    """The calls of one vendor by CUDA's names without the first letters: `bare.ask("MemAlloc", ...)`."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self.gpu = gpu
        self.vendor = gpu.vendor
        self.library = ctypes.CDLL(gpu.library)
        self._kept: list[object] = []
        self.contexts = [ctypes.c_void_p() for _ in gpu.drivers]
        if self.vendor == "cuda":
            for ordinal, context in enumerate(self.contexts):
                self.ask("DevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        self.use(0)

    def use(self, ordinal: int) -> None:
        """Let this thread work with a device."""
        if self.vendor == "cuda":
            self.ask("CtxSetCurrent", self.contexts[ordinal])
        else:
            self.ask("SetDevice", ordinal)

    def name(self, function: str) -> str:
        """What the vendor calls a function."""
        return f"cu{function}" if self.vendor == "cuda" else f"hip{_HIP_NAMES.get(function, function)}"

    def call(self, function: str, *arguments: object) -> int:
        """The driver's answer."""
        name = self.name(function) + (_VERSIONED.get(function, "") if self.vendor == "cuda" else "")
        return int(getattr(self.library, name)(*arguments))

    def ask(self, function: str, *arguments: object) -> None:
        """Call what must succeed."""
        answer = self.call(function, *arguments)
        assert answer == 0, f"{self.name(function)} answered {answer}"

    # --- Things ---

    def allocate(self, nbytes: int = 4096) -> int:
        """Plain memory of the current device."""
        address = ctypes.c_uint64()
        self.ask("MemAlloc", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address.value

    def stream(self, *, blocking: bool = False) -> ctypes.c_void_p:
        """A new stream of the current device."""
        stream = ctypes.c_void_p()
        self.ask("StreamCreate", ctypes.byref(stream), ctypes.c_uint(0 if blocking else 1))
        return stream

    def event(self, flags: int = 2) -> ctypes.c_void_p:
        """A new event; 2 is one without times."""
        event = ctypes.c_void_p()
        self.ask("EventCreate", ctypes.byref(event), ctypes.c_uint(flags))
        return event

    def launch(self, stream: ctypes.c_void_p, function: Callable[[], object]) -> None:
        """Queue a host function."""
        native = HOST_FUNCTION(lambda _: function() and None)
        self._kept.append(native)
        self.ask("LaunchHostFunc", stream, native, None)

    def copy(self, to: int, source: int, nbytes: int, stream: ctypes.c_void_p) -> int:
        """The answer to a copy that names no device."""
        arguments = (ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(nbytes))
        if self.vendor == "cuda":
            return self.call("MemcpyAsync", *arguments, stream)
        return self.call("MemcpyAsync", *arguments, ctypes.c_int(3), stream)

    def copy_peer(self, to: tuple[int, int], source: tuple[int, int], nbytes: int, stream: ctypes.c_void_p) -> int:
        """The answer to a copy that names the device of each address."""
        places = [
            (ctypes.c_uint64(address), self.contexts[device] if self.vendor == "cuda" else ctypes.c_int(device))
            for device, address in (to, source)
        ]
        return self.call("MemcpyPeerAsync", *places[0], *places[1], ctypes.c_size_t(nbytes), stream)

    def map_physical(self, device: int, nbytes: int = 2 << 20) -> tuple[int, ctypes.c_uint64]:
        """Memory of `device` at an address, open to nobody, and its handle."""
        handle, address = ctypes.c_uint64(), ctypes.c_uint64()
        wanted, size = properties(device, exportable=True), ctypes.c_size_t(nbytes)
        self.ask("MemCreate", ctypes.byref(handle), size, ctypes.byref(wanted), ctypes.c_uint64(0))
        self.map(address, nbytes, handle)
        return address.value, handle

    def map(self, address: ctypes.c_uint64, nbytes: int, handle: ctypes.c_uint64) -> None:
        """Reserve addresses for a handle and put it there."""
        size, zero = ctypes.c_size_t(nbytes), ctypes.c_uint64(0)
        self.ask("MemAddressReserve", ctypes.byref(address), size, ctypes.c_size_t(0), zero, zero)
        self.ask("MemMap", address, size, ctypes.c_size_t(0), handle, zero)

    def open_to(self, address: int, nbytes: int, device: int) -> None:
        """Let `device` touch memory that is mapped."""
        self.ask(
            "MemSetAccess",
            ctypes.c_uint64(address),
            ctypes.c_size_t(nbytes),
            ctypes.byref(rights(device)),
            ctypes.c_size_t(1),
        )

    # --- Threads ---

    def start(self, work: Callable[[], object], ordinal: int = 0) -> threading.Thread:
        """Run `work` on a thread that uses a device."""

        def run() -> None:
            self.use(ordinal)
            work()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def await_calls(self, function: str, count: int) -> None:
        """Wait until a function has been called so often, whether or not it has answered."""
        pause = threading.Event()
        while self.gpu.calls(self.name(function)) < count:
            pause.wait(0.001)
