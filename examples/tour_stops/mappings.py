"""Owns: the stop where pages change their addresses, show up twice, refuse writes, and a buffer grows in place."""

import ctypes
import time

import tensormem as tm
from tensormem.units import format_size
from tour_stops.guide import Guide

TITLE = "Pages and addresses apart: aliases, moves without copying, a buffer that grows in place"
PAGE_BYTES = 2 * 2**20
WORDS = b"written once"


def time_ns(call: object, *arguments: object, repeats: int = 15) -> int:
    """The fastest of some calls, in nanoseconds."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        call(*arguments)  # type: ignore[operator]
        taken.append(time.perf_counter_ns() - start)
    return min(taken)


def show_moves(guide: Guide, vmm: tm.VirtualMemoryManager) -> None:
    va = vmm.reserve("128GiB")
    pages = vmm.alloc_physical(PAGE_BYTES)
    here = vmm.map(va, pages, 0, access="read_write")
    alias = vmm.map(va, pages, "64GiB", access="read")
    ctypes.memset(here.address, 0x5A, PAGE_BYTES)
    ctypes.memmove(here.address, WORDS, len(WORDS))
    guide.expect("one page at two addresses shows the same bytes", ctypes.string_at(alias.address, 12) == WORDS)

    copy = vmm.map(va, vmm.alloc_physical(PAGE_BYTES), "32GiB", access="read_write")
    ctypes.memset(copy.address, 1, PAGE_BYTES)
    copying = time_ns(ctypes.memmove, copy.address, here.address, PAGE_BYTES)
    moving = 10**12
    for place in range(1, 16):
        start = time.perf_counter_ns()
        moved = vmm.move(here, place * PAGE_BYTES)
        moving, here = min(moving, time.perf_counter_ns() - start), moved
    rows = [("copy its bytes", f"{copying / 1000:,.1f}"), ("move it", f"{moving / 1000:,.1f}")]
    guide.table("to give 2 MiB another address", "microseconds", rows=rows)
    guide.expect("after fifteen moves it reads the same", ctypes.string_at(here.address, 12) == WORDS)
    guide.expect("its alias never moved", ctypes.string_at(alias.address, 12) == WORDS)
    guide.expect("moving is quicker than copying", moving < copying)


def show_growth(guide: Guide) -> None:
    rows, addresses = [], set[int]()
    with tm.GrowableBuffer("16GiB") as buffer:
        for size in ("1KiB", "64MiB", "128MiB", "1MiB"):
            buffer.resize(size)
            first = ctypes.c_char.from_buffer(buffer)
            rows.append((f"resize({size!r})", hex(ctypes.addressof(first)), format_size(buffer.capacity)))
            addresses.add(ctypes.addressof(first))
            del first
    guide.table("call", "address of its first byte", "memory behind it", rows=rows, text_columns=2)
    guide.expect("the buffer grew and shrank and never changed its address", len(addresses) == 1)


def show(guide: Guide) -> None:
    with tm.VirtualMemoryManager() as vmm:
        show_moves(guide, vmm)
        try:
            vmm.release(vmm.map(vmm.reserve(PAGE_BYTES), vmm.alloc_physical(PAGE_BYTES)).range)
        except tm.errors.StillMapped as refusal:
            guide.say(f"releasing addresses in use: {refusal}")
            guide.expect("mapped addresses are not released", refusal.mappings == 1)
    show_growth(guide)
