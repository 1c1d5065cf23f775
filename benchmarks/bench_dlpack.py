"""Question: what does it cost to see a tensor from another library, and to make a small one?"""

from collections.abc import Callable

import numpy
import torch
import tvm_ffi

import tensormem as tm
from harness import NANOSECONDS, Peer, Question, Row, summarise, time_peers, timing_row

SHAPE = (4, 4)
EXCHANGE_ROUNDS = 20_000
EXCHANGE_REPEATS = 15
REPEATS = 31  # what is compared differs by a tenth


def peers() -> list[Peer]:
    ours, array, other = tm.zeros(SHAPE), numpy.zeros(SHAPE, numpy.float32), torch.zeros(SHAPE)
    third = tvm_ffi.from_dlpack(array)
    into_numpy, into_torch, into_tvm = numpy.from_dlpack, torch.utils.dlpack.from_dlpack, tvm_ffi.from_dlpack
    return [
        Peer("numpy.from_dlpack(tensormem)", "f(x)", {"f": into_numpy, "x": ours}),
        Peer("numpy.from_dlpack(numpy)", "f(x)", {"f": into_numpy, "x": array}),
        Peer("numpy.from_dlpack(torch)", "f(x)", {"f": into_numpy, "x": other}),
        Peer("torch.from_dlpack(tensormem)", "f(x)", {"f": into_torch, "x": ours}),
        Peer("torch.from_dlpack(numpy)", "f(x)", {"f": into_torch, "x": array}),
        Peer("tvm_ffi.from_dlpack(tensormem)", "f(x)", {"f": into_tvm, "x": ours}),
        Peer("tvm_ffi.from_dlpack(numpy)", "f(x)", {"f": into_tvm, "x": array}),
        Peer("tensormem.from_dlpack(numpy)", "f(x)", {"f": tm.from_dlpack, "x": array}),
        Peer("tensormem.from_dlpack(torch)", "f(x)", {"f": tm.from_dlpack, "x": other}),
        Peer("tensormem.from_dlpack(tvm_ffi)", "f(x)", {"f": tm.from_dlpack, "x": third}),
        Peer("numpy.empty", "f(s, d)", {"f": numpy.empty, "s": SHAPE, "d": numpy.float32}),
        Peer("torch.empty", "f(s)", {"f": torch.empty, "s": SHAPE}),
    ]


def exchange(name: str, tensor: object) -> Row:
    """From Python object to C struct and back, by the type's own table: no Python call at all."""
    samples = [tm._core.time_exchange(tensor, EXCHANGE_ROUNDS) for _ in range(EXCHANGE_REPEATS)]
    return timing_row(name, None, summarise(samples))


def pooled_peers(pool: tm.mr.DeviceMemoryResource) -> list[Peer]:
    """Ours beside numpy.empty in memory of the same pool, which is what NumPy pays for a resource of ours."""
    return [
        Peer("tensormem.empty, from a pool", "f(s, mr=m)", {"f": tm.empty, "s": SHAPE, "m": pool}),
        Peer("numpy.empty, from a pool", "f(s, d)", {"f": numpy.empty, "s": SHAPE, "d": numpy.float32}),
    ]


def measure(say: Callable[[str], None]) -> list[Row]:
    say("small tensors between libraries")
    timings = time_peers(peers(), repeats=REPEATS)
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), "16MiB")
    with tm.interop.numpy.use(pool):
        timings |= time_peers(pooled_peers(pool), repeats=REPEATS)
    say("C exchange")
    return [
        *(timing_row(name, None, timing) for name, timing in timings.items()),
        exchange("C exchange of tensormem", tm.zeros(SHAPE)),
        exchange("C exchange of torch", torch.zeros(SHAPE)),
    ]


QUESTION = Question(
    name="dlpack",
    title="DLPack: one tensor seen by another library",
    asks="A float32 tensor of 4 by 4 becomes an object of another library and is dropped again. Ours checks every "
    "field of a foreign struct first. `empty` gives the memory back as well. The C exchange makes and deletes one.",
    case_label="",
    metrics=[NANOSECONDS],
    measure=measure,
    ours="numpy.from_dlpack(tensormem)",
    pairs=[
        ("numpy.from_dlpack(tensormem)", "numpy.from_dlpack(numpy)"),
        ("torch.from_dlpack(tensormem)", "torch.from_dlpack(numpy)"),
        ("tensormem.from_dlpack(numpy)", "tvm_ffi.from_dlpack(numpy)"),
        ("tensormem.empty, from a pool", "numpy.empty, from a pool"),
        ("C exchange of tensormem", "C exchange of torch"),
    ],
    packages=("tensormem", "numpy", "torch", "apache-tvm-ffi"),
)
