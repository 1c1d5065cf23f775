"""Question: how fast are bytes moved between spaces, and elements between layouts?"""

import ctypes
from collections.abc import Callable

import numpy
import torch

import tensormem as tm
from harness import Metric, Peer, Question, Row, Timing, time_peers

SIZES = (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 27)
GIGABYTES = Metric("GB/s", "speed (GB/s)", logarithmic=False)


def row(name: str, nbytes: int, timing: Timing) -> Row:
    return Row(name, nbytes, {"GB/s": nbytes / timing.median_ns, "ns": timing.median_ns})


def contiguous(nbytes: int) -> list[Peer]:
    """Warm memory on both sides: every byte was written before."""
    libc = ctypes.CDLL(None)
    libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    libc.memcpy.restype = None
    left, right = tm.full(nbytes, 1, "uint8"), tm.full(nbytes, 2, "uint8")
    pinned = tm.full(nbytes, 3, "uint8", space="pinned")
    pages = tm.full(nbytes, 3, "uint8", space="pinned")
    a, b = numpy.ones(nbytes, numpy.uint8), numpy.ones(nbytes, numpy.uint8)
    x, y = torch.ones(nbytes, dtype=torch.uint8), torch.ones(nbytes, dtype=torch.uint8)
    memcpy = {"f": libc.memcpy, "a": a.ctypes.data, "b": b.ctypes.data, "n": nbytes}
    return [
        Peer("tensormem", "a.copy_(b)", {"a": left, "b": right}),
        Peer("tensormem, pinned to pinned", "a.copy_(b)", {"a": pinned, "b": pages}),
        Peer("memcpy", "f(a, b, n)", memcpy),
        Peer("numpy", "f(a, b)", {"f": numpy.copyto, "a": a, "b": b}),
        Peer("torch", "a.copy_(b)", {"a": x, "b": y}),
    ]


def strided(nbytes: int) -> list[Peer]:
    """A matrix of float32 turned around, and every other column of one twice as wide."""
    side = int((nbytes // 4) ** 0.5)
    source = numpy.random.default_rng(1).random((side, side), dtype=numpy.float32)
    wide = numpy.ones((side, 2 * side), numpy.float32)
    target = numpy.zeros((side, side), numpy.float32)
    ours, theirs = tm.from_numpy(target), torch.from_numpy(target)
    turned, spread = tm.from_numpy(source.T), tm.from_numpy(wide[:, ::2])
    return [
        Peer("tensormem, transposed", "a.copy_(b)", {"a": ours, "b": turned}),
        Peer("numpy, transposed", "f(a, b)", {"f": numpy.copyto, "a": target, "b": source.T}),
        Peer("torch, transposed", "a.copy_(b)", {"a": theirs, "b": torch.from_numpy(source).t()}),
        Peer("tensormem, every other column", "a.copy_(b)", {"a": ours, "b": spread}),
        Peer("numpy, every other column", "f(a, b)", {"f": numpy.copyto, "a": target, "b": wide[:, ::2]}),
        Peer("torch, every other column", "a.copy_(b)", {"a": theirs, "b": torch.from_numpy(wide)[:, ::2]}),
    ]


def measure(say: Callable[[str], None]) -> list[Row]:
    rows = []
    for nbytes in SIZES:
        say(f"{nbytes:,} bytes")
        timings = time_peers(contiguous(nbytes)) | time_peers(strided(nbytes))
        rows += [row(name, nbytes, timing) for name, timing in timings.items()]
    return rows


QUESTION = Question(
    name="copies",
    title="Copies: between spaces and between layouts",
    asks="Warm memory. Contiguous copies beside memcpy; a transposed matrix and every other column beside NumPy and "
    "torch, into the same memory. Ours uses two threads from 1 MiB on; torch uses as many as it likes.",
    case_label="bytes",
    metrics=[GIGABYTES],
    measure=measure,
    packages=("tensormem", "numpy", "torch"),
)
