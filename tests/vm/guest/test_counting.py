"""DMA-BUFs are counted by a leaf of the resource stack: limited, tagged and traced like other memory, each once."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tensormem as tm
from tensormem import errors
from tensormem.memories import dma
from vm.guest.kernel_view import live_buffers


@contextmanager
def serving(mr: tm.mr.DeviceMemoryResource) -> Iterator[None]:
    before = tm.mr.get_kind_resource("dma")
    tm.mr.set_kind_resource("dma", mr)
    try:
        yield
    finally:
        tm.mr.set_kind_resource("dma", before)


def test_a_limit_counts_and_refuses_before_a_buffer_is_made() -> None:
    limited = tm.mr.LimitingResourceAdaptor(tm.mr.DmaMemoryResource(), "10KiB")
    with serving(limited):
        first, buffers = dma.allocate(8192, tag="frames"), live_buffers()
        with pytest.raises(errors.OutOfBudget) as refused:
            dma.allocate(8192)
        assert refused.value.remaining == 2048 and live_buffers() == buffers
        first.close()
        assert limited.bytes_outstanding == 0 and live_buffers() == buffers - 1


def test_tags_statistics_and_traces_see_each_buffer_once(tmp_path: Path) -> None:
    tracking = tm.mr.TrackingResourceAdaptor(tm.mr.DmaMemoryResource())
    with serving(tracking), tm.trace(tmp_path / "run.tmt"):
        with tm.tag("camera"):
            mine = dma.allocate(5000)
        fd = mine.owner.export_fd()
        again = dma.from_fd(fd)  # the same memory: it is counted already
        os.close(fd)
        assert [(block.tag, block.nbytes) for block in tracking.outstanding()] == [("camera", 5000)]
        mine.close()
        assert len(tracking.outstanding()) == 1 and set(tm.Tensor(again, "uint8", 64).tolist()) == {0}
        del again
        gc.collect()
        assert tracking.outstanding() == []
    with tm.trace.open(tmp_path / "run.tmt") as trace:
        seen = [(event.kind, event.tag) for event in trace.events() if event.nbytes == 5000 and event.depth == 0]
    assert seen == [("allocate", "camera"), ("deallocate", "camera")]


def test_the_resource_works_alone_and_under_a_pool() -> None:
    gc.collect()
    leaf, buffers = tm.mr.DmaMemoryResource("udmabuf"), live_buffers()
    block = leaf.allocate("64KiB", tag="alone")
    with memoryview(block) as view:
        view[:4] = b"abcd"
    assert leaf.bytes_outstanding == 65536 and live_buffers() == buffers + 1
    leaf.deallocate(block)
    pool = tm.mr.PoolMemoryResource(leaf)
    assert tm.zeros((64, 64), mr=pool).tolist()[3] == [0.0] * 64
    del pool
    gc.collect()
    assert leaf.bytes_outstanding == 0 and live_buffers() == buffers
