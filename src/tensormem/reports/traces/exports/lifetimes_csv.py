"""Owns: writing a trace as lifetimes: `id,lower,upper,size`, counted in allocations and deallocations."""

import io
from typing import BinaryIO

from tensormem.trace import Trace, write_lifetimes


def write(trace: Trace, out: BinaryIO) -> None:
    """Every block that the program asked for, a line each."""
    text = io.StringIO(newline="")
    write_lifetimes(trace.lifetimes(), text)
    out.write(text.getvalue().encode())
