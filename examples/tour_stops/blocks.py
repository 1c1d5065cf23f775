"""Owns: the stop where one block is used on two streams and given back while one of them is still at work."""

import ctypes
import threading

import tensormem as tm
from tensormem.streams import Stream
from tensormem.units import format_size
from tour_stops.guide import Guide

TITLE = "The life of a block: freed when the last stream is done with it, not before"
BLOCK_BYTES = 8 * 2**20


def show(guide: Guide) -> None:
    mr = tm.mr.HostMemoryResource()
    rows: list[tuple[str, ...]] = []
    with Stream(tm.drivers.host()) as writer, Stream(tm.drivers.host()) as reader:
        gate = threading.Event()
        read: list[int] = []
        block = mr.allocate(BLOCK_BYTES, writer, tag="activations")

        def note(step: str) -> str:
            rows.append((step, block.state, format_size(mr.bytes_outstanding)))
            return rows[-1][1]

        note("allocated on stream 1")
        mr.prepare_block_use(block, writer, "write")
        mr.driver.fill(block, 42, 1, (BLOCK_BYTES, 1, 1), writer)
        mr.finish_block_use(block, writer, "write")
        note("written on stream 1")
        mr.prepare_block_use(block, reader, "read")
        reader.launch(gate.wait)
        reader.launch(lambda: read.append(ctypes.c_uint8.from_address(block.ptr + BLOCK_BYTES - 1).value))
        mr.finish_block_use(block, reader, "read")
        note("being read on stream 2, which is held up")
        mr.deallocate(block, writer)
        early = note("given back on stream 1")
        mr.reap_pending()
        kept = note("reaped: stream 2 is not done, so it is kept")
        gate.set()
        reader.synchronize()
        writer.synchronize()
        mr.reap_pending()
        final = note("stream 2 done, reaped again")

    guide.table("step", "state", "outstanding", rows=rows, text_columns=2)
    guide.expect("a block in use is retired, not freed", (early, kept) == ("retired", "retired"))
    guide.expect("the late reader still read what was written", read == [42])
    guide.expect("it was freed once nobody used it", final == "freed" and mr.bytes_outstanding == 0)
