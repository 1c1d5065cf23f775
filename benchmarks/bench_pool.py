"""Question: what does a pooled allocation cost from Python, taken and given back, with few and many live blocks?"""

import ctypes
import random
from collections.abc import Callable

import numpy
import pyarrow
import pyopencl
import pyopencl.tools
import rmm.mr
import torch

import tensormem as tm
from harness import NANOSECONDS, Peer, Question, Row, time_peers, timing_row

NBYTES = 1024
LIVE = (10, 1_000, 10_000)


def opencl_pool() -> pyopencl.tools.MemoryPool:
    device = pyopencl.get_platforms()[0].get_devices()[0]
    queue = pyopencl.CommandQueue(pyopencl.Context([device]))
    return pyopencl.tools.MemoryPool(pyopencl.tools.ImmediateAllocator(queue))


def rmm_pool() -> rmm.mr.PoolMemoryResource:
    """RMM's pool over the C library. Without a GPU it also pays for CUDA calls that fail."""
    libc = ctypes.CDLL(None)
    libc.aligned_alloc.restype = ctypes.c_void_p
    libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    upstream = rmm.mr.CallbackMemoryResource(
        lambda nbytes, stream: libc.aligned_alloc(256, (nbytes + 255) // 256 * 256),
        lambda address, nbytes, stream: libc.free(address),
    )
    return rmm.mr.PoolMemoryResource(upstream, initial_pool_size=256 << 20, maximum_pool_size=256 << 20)


def our_pool() -> tm.mr.PoolMemoryResource:
    return tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), "256MiB")


def peers(live: int, held: list[object]) -> list[Peer]:
    """Each peer with `live` blocks of mixed sizes held, then one block of NBYTES taken and given back."""
    ours, arena, theirs = our_pool(), tm.mr.ArenaMemoryResource(tm.mr.HostMemoryResource()), opencl_pool()
    rapids = rmm_pool()
    source = random.Random(live)
    for _ in range(live):
        nbytes = source.randrange(256, 16 << 10)
        held.append([ours.allocate(nbytes), arena.allocate(nbytes), theirs.allocate(nbytes)])
        rapids.allocate(nbytes)  # a bare address: it stays taken until the pool goes
    return [
        Peer("tensormem", "free(take(n))", {"take": ours.allocate, "free": ours.deallocate, "n": NBYTES}),
        Peer("tensormem arena", "free(take(n))", {"take": arena.allocate, "free": arena.deallocate, "n": NBYTES}),
        Peer("pyopencl MemoryPool", "take(n).release()", {"take": theirs.allocate, "n": NBYTES}),
        Peer(
            "rmm Pool (callback)", "free(take(n), n)", {"take": rapids.allocate, "free": rapids.deallocate, "n": NBYTES}
        ),
        Peer("pyarrow", "take(n)", {"take": pyarrow.allocate_buffer, "n": NBYTES}),
        Peer("torch.empty", "empty(n, dtype=u8)", {"empty": torch.empty, "u8": torch.uint8, "n": NBYTES}),
        Peer("numpy.empty", "empty(n, u8)", {"empty": numpy.empty, "u8": numpy.uint8, "n": NBYTES}),
    ]


def measure(say: Callable[[str], None]) -> list[Row]:
    rows = []
    for live in LIVE:
        say(f"{live:,} live blocks")
        held: list[object] = []
        rows += [timing_row(name, live, timing) for name, timing in time_peers(peers(live, held)).items()]
    return rows


QUESTION = Question(
    name="pool",
    title="Pooled memory: allocate and deallocate from Python",
    asks=f"One block of {NBYTES} bytes taken and given back while others are live. Ours checks sizes, generations, "
    "stale, double and foreign frees on every call; numpy, torch and pyarrow are not pools of the caller's and know "
    "nothing of the live blocks. RMM's pool stands on the C library here, and also pays for CUDA calls that fail.",
    case_label="live blocks",
    metrics=[NANOSECONDS],
    measure=measure,
    packages=("tensormem", "pyopencl", "pocl-binary-distribution", "rmm-cu12", "numpy", "pyarrow", "torch"),
)
