"""Owns: switching a simulated GPU on and off, and talking to it: plans, logs, reports.

It proves the order and the arguments of driver calls, never a real GPU's timing. Must not know: what is being tested.
"""

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tensormem import copy, errors
from tensormem._core import Driver, GpuPlatform, Stream, open_gpu
from tensormem.drivers import registry, simulator
from tensormem.mr import current
from tensormem.public_functions import explain_misspellings
from tensormem.testing.gpu_facts import HABITS, Habits, MachineFacts, config_text

__all__ = ["HABITS", "Habits", "SimulatedGpu", "simulated_environment", "simulated_gpu"]

_MEMORY = (
    "allocations",
    "pool_allocations",
    "host_allocations",
    "registrations",
    "managed_allocations",
    "reservations",
    "mappings",
    "physicals",
    "external_memories",
    "external_buffers",
)
_DELAYS = {"call": "tensormem_simgpu_delay", "stream": "tensormem_simgpu_delay_work"}
_switch = threading.Lock()
_on: dict[str, "SimulatedGpu"] = {}


class SimulatedGpu:
    """A simulated machine that is switched on: its drivers, and what tests want to plan and to know.

    >>> from tensormem.testing import simulated_gpu
    >>> with simulated_gpu(devices=2, memory="64MiB") as gpu:
    ...     gpu.fail("cuMemAlloc", nth=1, result=2)
    ...     gpu.drivers[1].memory_info()
    (67108864, 67108864)
    """

    def __init__(self, vendor: str, config: str) -> None:
        path = simulator.library_path(vendor)
        self.vendor = vendor
        self.library = path
        self.leaks: dict[str, int] = {}
        """What was left behind, by kind; known when the simulation has ended."""
        self._native = ctypes.CDLL(path)
        for name in ("tensormem_simgpu_calls", "tensormem_simgpu_timing_records", "tensormem_simgpu_missed"):
            getattr(self._native, name).restype = ctypes.c_uint64
        for name in ("tensormem_simgpu_log", "tensormem_simgpu_report", "tensormem_simgpu_advice"):
            getattr(self._native, name).restype = ctypes.c_size_t
        self._open(config)
        try:
            self.platform: GpuPlatform = open_gpu(vendor, path)
        except errors.DriverUnavailable:
            self._native.tensormem_simgpu_close()
            raise

    def __repr__(self) -> str:
        return f"<SimulatedGpu {self.vendor} ({len(self.platform.drivers)} devices)>"

    @property
    def drivers(self) -> tuple[Driver, ...]:
        """One driver per device."""
        return self.platform.drivers

    # --- Plans ---

    def fail(self, function: str, nth: int = 1, result: int = 2) -> None:
        """Let the `nth` call of `function` from now on ("*": of any) answer `result` (2: out of memory), once."""
        if nth < 1:
            raise errors.InvalidArgument(f"calls are counted from 1, not from {nth}")
        self._native.tensormem_simgpu_fail(function.encode(), ctypes.c_uint64(nth), ctypes.c_int(result))

    @property
    def has_failed(self) -> bool:
        """Whether the planned failure has happened."""
        return bool(self._native.tensormem_simgpu_has_fired())

    def delay(self, function: str, seconds: float, *, on: str = "call") -> None:
        """Let every call of `function` take so long from now on; 0 ends it. With `on="stream"` the call returns at
        once, and the work that it queued takes the time on its stream, as work on a GPU does."""
        if on not in _DELAYS:
            raise errors.InvalidArgument(f"a delay is on the call or on the stream, not on {on!r:.40}")
        if not seconds >= 0:
            raise errors.InvalidArgument(f"a delay is a number of seconds from 0, not {seconds!r}")
        getattr(self._native, _DELAYS[on])(function.encode(), ctypes.c_uint64(int(seconds * 1e9)))

    def hold(self, function: str, seconds: float = 10.0) -> None:
        """Let every call of `function` wait until `let_go`, or so long, which counts as `missed`; "" ends it."""
        self._native.tensormem_simgpu_hold(function.encode(), ctypes.c_uint64(int(seconds * 1e9)))

    def wait_until_held(self, seconds: float) -> bool:
        """Wait until a call is held, so long at the most; whether one is."""
        return bool(self._native.tensormem_simgpu_wait_until_held(ctypes.c_uint64(int(seconds * 1e9))))

    def let_go(self) -> None:
        """Let the call go on that is held, if one is."""
        self._native.tensormem_simgpu_let_go()

    @property
    def missed(self) -> int:
        """How many held calls were not let go in time: nobody could."""
        return int(self._native.tensormem_simgpu_missed())

    def clear_plan(self) -> None:
        """Forget the planned failure, all delays and what is held."""
        self._native.tensormem_simgpu_clear_plan()

    def break_device(self, device: int = 0, result: int = 719) -> None:
        """Let `device` answer `result` to everything from now on, as a device does that is lost."""
        self._check(self._native.tensormem_simgpu_break_device(device, result))

    def touch(self, address: int, nbytes: int, stream: Stream | None = None, *, write: bool = True) -> None:
        """Do what a kernel on `stream` would do: touch these bytes, at that place of the stream."""
        handle = 0 if stream is None else stream.handle
        number, size = ctypes.c_uint64(address), ctypes.c_uint64(nbytes)
        self._check(self._native.tensormem_simgpu_touch(ctypes.c_void_p(handle), number, size, int(write)))

    # --- What happened ---

    def calls(self, function: str = "*") -> int:
        """How often `function` was called since the simulation began; "*" counts all calls."""
        return int(self._native.tensormem_simgpu_calls(function.encode()))

    @property
    def timing_records(self) -> int:
        """How often an event that keeps the time was recorded: dear, and of no use where only the order counts."""
        return int(self._native.tensormem_simgpu_timing_records())

    def log(self) -> list[str]:
        """The latest calls in order, one line each: number, function, arguments, answer."""
        return self._text("log").splitlines()

    def report(self) -> dict[str, int]:
        """How many of each thing exist at this moment."""
        pairs = (line.partition("=") for line in self._text("report").splitlines())
        return {name: int(value) for name, _, value in pairs if name != "violation"}

    def violations(self) -> list[str]:
        """What was wrong with the order or the addresses of work, though no call failed."""
        lines = self._text("report").splitlines()
        return [line.partition("=")[2] for line in lines if line.startswith("violation=")]

    def memory(self) -> dict[str, int]:
        """The kinds of memory that are out at this moment, and how much of each; empty when nothing is."""
        return {name: count for name, count in self.report().items() if count and name in _MEMORY}

    def advice(self, address: int) -> list[str]:
        """What the driver was told about the managed memory at an address, and has not been told to forget."""
        return self._text("advice", ctypes.c_uint64(address)).split()

    # --- On and off ---

    def close(self) -> None:
        """Switch it off: what it still holds is noted in `leaks`, and every handle of it is refused from now on."""
        self.leaks = self.memory()
        self.platform.close()
        self._native.tensormem_simgpu_close()

    def _open(self, config: str) -> None:
        why = ctypes.create_string_buffer(256)
        if self._native.tensormem_simgpu_open(config.encode(), why, ctypes.c_size_t(256)) != 0:
            raise errors.InvalidArgument(why.value.decode(errors="replace"))

    def _text(self, what: str, *arguments: ctypes.c_uint64) -> str:
        function = getattr(self._native, f"tensormem_simgpu_{what}")
        size = function(*arguments, None, ctypes.c_size_t(0))
        while True:
            buffer = ctypes.create_string_buffer(size)
            needed = function(*arguments, buffer, ctypes.c_size_t(size))
            if needed <= size:
                return buffer.value.decode()
            size = needed

    def _check(self, result: int) -> None:
        if result != 0:
            name, text = self.platform.explain(result)
            raise errors.InvalidArgument(f"the simulated GPU refuses: {name or result} ({text})")


@contextmanager
def simulated_gpu(
    devices: int = 2,
    memory: int | str | Sequence[int | str] = "1GiB",
    *,
    vendor: str = "cuda",
    strict: bool = True,
    profile: str | None = None,
    habits: Habits | None = None,
    version: int | None = None,
    peer: int | None = None,
    pools: int | None = None,
    virtual: int | None = None,
    managed: int | None = None,
    concurrent: int | None = None,
    posix: int | None = None,
    integrated: int | None = None,
    granularity: int | str | None = None,
    recommended: int | str | None = None,
    queue: int | None = None,
    without: str | Sequence[str] | None = None,
) -> Iterator[SimulatedGpu]:
    """Simulate `devices` GPUs with so much `memory` each (or a size for each one) while the body runs.

    Inside, `tensormem.drivers` finds them as it would find real ones. (Other clients of the driver find them in
    a process with the variables of `simulated_environment`.) `strict` raises at the end if the order of work on streams
    was broken.

    `profile` is the kind of device ("h100", "orin", "wsl", "vgpu", "novmm"; for ROCm "mi300", "mi300-rocm6.2",
    "mi300-rocm7.1", "mi300-rocm10"), which says what it can do. `habits` are what real drivers do and a kind one does
    not (the list is `HABITS`): all of them are on. `habits={"free_waits": False}` switches one off, `habits=False` all.
    What follows overrides the profile: `version` of the driver (12020); whether there are `peer` access, `pools`,
    `virtual` memory, `managed` memory, `concurrent` access to it and `posix` handles, and whether it is `integrated`
    (0 or 1); `granularity` and the `recommended` one ("64KiB"); how much a stream's `queue` holds; and functions that
    the driver is `without` (["cuMemCreate", "cuMemMap"]).

    >>> import tensormem as tm
    >>> from tensormem.testing import simulated_gpu
    >>> with simulated_gpu(memory=["64MiB", "32MiB"]):
    ...     tm.drivers.get("cuda:1")
    <Driver cuda:1 (simulated)>
    """
    sizes = [memory] * devices if isinstance(memory, int | str) else list(memory)
    facts = MachineFacts(
        version=version,
        peer=peer,
        pools=pools,
        virtual=virtual,
        managed=managed,
        concurrent=concurrent,
        posix=posix,
        integrated=integrated,
        granularity=granularity,
        recommended=recommended,
        queue=queue,
        without=without,
    )
    with _switched_on(vendor, config_text(sizes, profile, habits, facts)) as gpu:
        yield gpu
        violations = gpu.violations()
    if strict and violations:
        raise AssertionError("the simulated GPU saw work in a wrong order: " + "; ".join(violations))


def simulated_environment(
    devices: int = 2,
    memory: int | str = "1GiB",
    *,
    vendor: str = "cuda",
    profile: str | None = None,
    habits: Habits | None = None,
    version: int | None = None,
    peer: int | None = None,
    pools: int | None = None,
    virtual: int | None = None,
    managed: int | None = None,
    concurrent: int | None = None,
    posix: int | None = None,
    integrated: int | None = None,
    granularity: int | str | None = None,
    recommended: int | str | None = None,
    queue: int | None = None,
    without: str | Sequence[str] | None = None,
) -> dict[str, str]:
    """Variables for a new process: in it, tensormem and every client of `vendor`'s driver find a simulated GPU.

    >>> from tensormem.testing.gpus import simulated_environment
    >>> simulated_environment(1, "64MiB")["TENSORMEM_SIMGPU"]
    'memory=67108864...'
    """
    facts = MachineFacts(
        version=version,
        peer=peer,
        pools=pools,
        virtual=virtual,
        managed=managed,
        concurrent=concurrent,
        posix=posix,
        integrated=integrated,
        granularity=granularity,
        recommended=recommended,
        queue=queue,
        without=without,
    )
    folder = str(Path(simulator.library_path(vendor)).parent)
    path = os.environ.get("LD_LIBRARY_PATH")
    return {
        "TENSORMEM_SIMGPU": config_text([memory] * devices, profile, habits, facts),
        "LD_LIBRARY_PATH": folder if not path else f"{folder}{os.pathsep}{path}",
    }


@contextmanager
def _switched_on(vendor: str, config: str) -> Iterator[SimulatedGpu]:
    with _switch:
        if vendor in _on:
            raise errors.InvalidArgument(f"a simulated GPU of {vendor} is on already")
        gpu = _on[vendor] = SimulatedGpu(vendor, config)
    before = registry.use_platform(vendor, gpu.platform)
    try:
        yield gpu
    finally:
        if not sys.is_finalizing():  # at the end of the interpreter the simulation goes with the process
            registry.use_platform(vendor, before)
            copy.finish(vendor)
            current.forget_driver(vendor)
            gc.collect()
            gpu.close()
            with _switch:
                del _on[vendor]


explain_misspellings(globals())
