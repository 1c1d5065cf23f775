"""Times driver-bound calls of tensormem and cuda-core on the simulated GPU, and prints the figures as JSON.

Owns: the program that bench_gpu_overhead.py starts. It needs a process of its own: in it, every client of CUDA's driver
finds the simulated one (`tensormem.testing.gpus.simulated_environment`). Must not know: how figures are shown.
"""

import ctypes
import json
import time

from cuda.core import Device, DeviceMemoryResource, VirtualMemoryResource

import tensormem as tm
from harness import Peer, time_peers

NBYTES = 1 << 20
PAGE = 2 << 20


LIBRARY = ctypes.CDLL("libcuda.so.1")
LIBRARY.tensormem_simgpu_report.restype = ctypes.c_size_t
LIBRARY.tensormem_simgpu_nanoseconds.restype = ctypes.c_uint64


def report() -> dict[str, int]:
    """What the simulated GPU holds at this moment."""
    text = ctypes.create_string_buffer(1 << 16)
    LIBRARY.tensormem_simgpu_report(text, ctypes.c_size_t(len(text)))
    return {name: int(value) for name, _, value in (line.partition("=") for line in text.value.decode().splitlines())}


def own_time() -> int:
    """The clock of everything but the simulated driver: it stands still inside the driver's calls."""
    return time.perf_counter_ns() - int(LIBRARY.tensormem_simgpu_nanoseconds())


def allocations(device: Device) -> list[Peer]:
    """One block taken and given back, on a stream."""
    theirs, stream = DeviceMemoryResource(device), device.create_stream()
    ours = tm.Stream(tm.drivers.get("cuda:0"))
    stacks = {
        "stream-ordered": tm.mr.GpuAsyncMemoryResource("cuda:0"),
        "plain": tm.mr.GpuMemoryResource("cuda:0"),
        "pool": tm.mr.PoolMemoryResource(tm.mr.GpuAsyncMemoryResource("cuda:0")),
    }
    take = {"n": NBYTES, "s": stream, "take": theirs.allocate}
    return [
        Peer("cuda-core", "take(n, stream=s).close(s)", take),
        *(
            Peer(name, "free(take(n, s), s)", {"n": NBYTES, "s": ours, "take": mr.allocate, "free": mr.deallocate})
            for name, mr in stacks.items()
        ),
    ]


def pages(device: Device) -> list[Peer]:
    """Addresses reserved, 2 MiB created, mapped and opened to the device, and all of it given back."""
    vmm, theirs = tm.VirtualMemoryManager("cuda:0"), VirtualMemoryResource(device)
    work = """
va = vmm.reserve(n)
page = vmm.alloc_physical(n)
vmm.map(va, page, 0, access="read_write")
vmm.unmap(va, 0, n)
vmm.free_physical(page)
vmm.release(va)
"""
    return [
        Peer("mapped", work, {"n": PAGE, "vmm": vmm}),
        Peer("cuda-core", "take(n).close()", {"n": PAGE, "take": theirs.allocate}),
    ]


def leaks_per_call(peer: Peer, calls: int = 10) -> float:
    """Physical allocations that stay behind, per call."""
    before = report()["physicals"]
    for _ in range(calls):
        exec(peer.work if isinstance(peer.work, str) else "", dict(peer.names))
    return (report()["physicals"] - before) / calls


def figures(peers: list[Peer], turns: int, leaks: dict[str, float]) -> list[dict[str, object]]:
    """Each of our ways beside cuda-core's."""
    # Few calls in a turn: what a peer does not give back stays until the end.
    whole = time_peers(peers, repeats=turns, turn_ns=2_000_000)
    own = time_peers(peers, repeats=turns, turn_ns=2_000_000, clock=own_time)
    rows: list[dict[str, object]] = []
    for what in [peer.name for peer in peers if peer.name != "cuda-core"]:
        for name, measured in (("tensormem", what), ("cuda-core", "cuda-core")):
            taken = {"ns": whole[measured].median_ns, "own_ns": own[measured].median_ns}
            rows.append({"what": what, "peer": name, **taken, "leaked": leaks.get(measured, 0.0)})
    return rows


def main() -> None:
    device = Device(0)
    device.set_current()
    mapped = pages(device)
    leaks = {peer.name: leaks_per_call(peer) for peer in mapped}
    print(json.dumps([*figures(allocations(device), 15, {}), *figures(mapped, 5, leaks)]))


main()
