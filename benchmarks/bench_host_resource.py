"""Question: what does one plain host allocation cost from Python, taken and given back?"""

from collections.abc import Callable

import numpy
import pyarrow
import torch

import tensormem as tm
from harness import NANOSECONDS, Peer, Question, Row, time_peers, timing_row

SIZES = (256, 64 << 10, 1 << 20, 64 << 20)


def peers(nbytes: int) -> list[Peer]:
    resource = tm.mr.HostMemoryResource()
    ours = {"allocate": resource.allocate, "deallocate": resource.deallocate, "n": nbytes}
    return [
        Peer("tensormem", "deallocate(allocate(n))", ours),
        Peer("numpy.empty", "empty(n, uint8)", {"empty": numpy.empty, "uint8": numpy.uint8, "n": nbytes}),
        Peer("bytearray (zeroed)", "bytearray(n)", {"n": nbytes}),
        Peer("pyarrow", "allocate(n)", {"allocate": pyarrow.allocate_buffer, "n": nbytes}),
        Peer("torch.empty", "empty(n, dtype=uint8)", {"empty": torch.empty, "uint8": torch.uint8, "n": nbytes}),
    ]


def measure(say: Callable[[str], None]) -> list[Row]:
    rows = []
    for nbytes in SIZES:
        say(f"{nbytes:,} bytes")
        rows += [timing_row(name, nbytes, timing) for name, timing in time_peers(peers(nbytes)).items()]
    return rows


QUESTION = Question(
    name="host_resource",
    title="Host memory: allocate and deallocate from Python",
    asks="One allocation taken and given back at once, untouched in between. `HostMemoryResource` keeps all its checks "
    "on (sizes, generations, stale and foreign blocks); peers check nothing, and `bytearray` also zeroes its bytes.",
    case_label="bytes",
    metrics=[NANOSECONDS],
    measure=measure,
    packages=("tensormem", "numpy", "pyarrow", "torch"),
)
