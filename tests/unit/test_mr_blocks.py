"""Blocks as values: their states, the ways to use them, and what they are as buffers."""

import pickle

import pytest

from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.mr import Access, BlockState
from tensormem.streams import Stream
from tensormem.testing.resources import Gate


def test_a_block_goes_through_its_states_and_never_back() -> None:
    pool, gate = mr.PoolMemoryResource(mr.HostMemoryResource()), Gate()
    with Stream(host()) as reader:
        gate.hold(reader)
        block = pool.allocate(64)
        seen = [block.state]
        pool.record_block_use(block, reader)
        pool.deallocate(block)
        seen.append(block.state)
        gate.open()
        reader.synchronize()
        pool.reap_pending()
        seen.append(block.state)
    assert seen == [BlockState.LIVE, BlockState.RETIRED, BlockState.FREED]
    assert pool.allocate(64).state is BlockState.LIVE
    assert block.state is BlockState.FREED


def test_a_guarded_block_is_quarantined_before_it_is_freed() -> None:
    guard = mr.DebugGuardResourceAdaptor(mr.HostMemoryResource(), quarantine_bytes=4096)
    block = guard.allocate(64)
    guard.deallocate(block)
    seen = [block.state]
    with pytest.raises(errors.UseAfterFree):
        memoryview(block)
    for _ in range(100):
        guard.deallocate(guard.allocate(64))
    seen.append(block.state)
    assert seen == [BlockState.QUARANTINED, BlockState.FREED]


def test_states_and_accesses_are_text() -> None:
    assert [*BlockState] == ["live", "retired", "quarantined", "freed"]
    assert [*Access] == ["read", "write", "read_write"]
    assert pickle.loads(pickle.dumps((BlockState.LIVE, Access.READ))) == ("live", "read")
    assert f"{BlockState.LIVE} {Access.READ_WRITE!r}" == "live 'read_write'"


@pytest.mark.parametrize("access", [*Access, "read", "write", "read_write"])
def test_an_access_is_a_name_or_its_text(access: Access | str) -> None:
    heap = mr.HostMemoryResource()
    block = heap.allocate(64)
    with Stream(host()) as stream:
        heap.prepare_block_use(block, stream, access)
        heap.finish_block_use(block, stream, access)
    heap.deallocate(block)


def test_a_block_is_a_writable_buffer_of_bytes() -> None:
    block = mr.HostMemoryResource(zeroed=True).allocate(300)
    with memoryview(block) as view:
        assert (view.nbytes, view.format, view.readonly, view.c_contiguous, view.ndim) == (300, "B", False, True, 1)
        view[299] = 9
        assert block.export_count == 1
        with view[10:20] as part, memoryview(block):
            assert (part.nbytes, block.export_count) == (10, 2)
    assert (block.export_count, bytes(block)[299]) == (0, 9)
    block.mr.deallocate(block)
    assert block.export_count == 0
