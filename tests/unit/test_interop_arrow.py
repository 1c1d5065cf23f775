"""Blocks as Arrow buffers, with the real pyarrow."""

import gc
from typing import Any

import pytest

from tensormem import errors, mr
from tensormem.interop.arrow import allocate_buffer, buffer


@pytest.fixture(scope="module")
def pa() -> Any:
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.fixture
def host() -> mr.HostMemoryResource:
    return mr.HostMemoryResource(zeroed=True)


def test_a_buffer_is_the_memory_of_the_block_and_keeps_it(pa: Any, host: mr.HostMemoryResource) -> None:
    block = host.allocate(64)
    data = buffer(block)
    assert (data.address, data.size, data.is_mutable) == (block.ptr, 64, False)
    array = pa.Array.from_buffers(pa.int64(), 8, [None, data])
    assert array.to_pylist() == [0] * 8
    del block, data
    gc.collect()
    assert host.bytes_outstanding == 64
    tail = array.slice(6)
    del array
    gc.collect()
    assert host.bytes_outstanding == 64 and tail.to_pylist() == [0, 0]
    del tail
    gc.collect()
    assert host.bytes_outstanding == 0


def test_a_block_under_a_buffer_cannot_be_given_back(pa: Any, host: mr.HostMemoryResource) -> None:
    block = host.allocate(64)
    data = buffer(block)
    tail = pa.Array.from_buffers(pa.int64(), 8, [None, data]).slice(6)
    del data
    gc.collect()
    with pytest.raises(errors.StillExported):
        host.deallocate(block)
    assert tail.to_pylist() == [0, 0] and block.state == "live"
    del tail
    gc.collect()
    host.deallocate(block)
    assert host.bytes_outstanding == 0


def test_a_new_buffer_can_be_written_and_read_by_arrow(pa: Any, host: mr.HostMemoryResource) -> None:
    data = allocate_buffer(host, 80)
    assert data.is_mutable and data.address % 64 == 0
    memoryview(data).cast("B").cast("q")[:] = memoryview(b"".join(i.to_bytes(8, "little") for i in range(10))).cast("q")
    array = pa.Array.from_buffers(pa.int64(), 10, [None, data])
    assert array.validate(full=True) is None and array.sum().as_py() == 45
    table = pa.table({"n": array})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().equals(table)
    del data, array, table, writer
    gc.collect()
    assert host.bytes_outstanding == 0


@pytest.mark.usefixtures("pa")
def test_the_block_of_a_buffer_is_tagged_and_sizes_may_be_text(host: mr.HostMemoryResource) -> None:
    data = allocate_buffer(host, "1KiB")
    assert host.bytes_outstanding == data.size == 1024
    with pytest.raises(errors.ResourceError):
        allocate_buffer(mr.FaultInjectionResourceAdaptor(host, tag="arrow", every=1), 10)


@pytest.mark.usefixtures("pa")
def test_what_cannot_be_a_buffer_is_refused_and_nothing_is_taken(host: mr.HostMemoryResource) -> None:
    class Remote(mr.HostMemoryResource):
        is_host_accessible = property(lambda self: False)

    block = host.allocate(64)
    host.deallocate(block)
    with pytest.raises(errors.UseAfterFree):
        buffer(block)
    with pytest.raises(errors.InvalidArgument, match="cannot touch"):
        buffer(Remote().allocate(64))
    with pytest.raises(errors.InvalidArgument, match="cannot touch"):
        allocate_buffer(Remote(), 64)
    with pytest.raises(errors.InvalidArgument, match="not str"):
        allocate_buffer("host", 64)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidSize):
        allocate_buffer(host, 0)
    with pytest.raises(errors.OutOfBudget):
        allocate_buffer(mr.LimitingResourceAdaptor(host, 10), 64)
    assert host.bytes_outstanding == 0
