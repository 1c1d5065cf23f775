"""The launch recorder: what queued work reads and writes, prepared and finished as one step."""

from collections.abc import Callable

import pytest

from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing.resources import Gate


def test_work_waits_for_what_it_reads_and_for_whoever_reads_what_it_writes() -> None:
    heap, gate, order = mr.HostMemoryResource(), Gate(), list[str]()
    a, b = heap.allocate(64), heap.allocate(64)
    with Stream(host()) as first, Stream(host()) as second, Stream(host()) as third:
        gate.hold(first)
        with heap.launch(first) as use:
            use.write(a)
            first.launch(order.append, "write a")
        with heap.launch(second) as use:
            use.read(a)
            use.write(b)
            second.launch(order.append, "read a, write b")
        with heap.launch(third) as use:
            use.write(a)
            use.read(b)
            third.launch(order.append, "write a, read b")
        assert order == []
        gate.open()
        third.synchronize()
    assert order == ["write a", "read a, write b", "write a, read b"]


def test_readers_do_not_wait_for_each_other() -> None:
    heap, gate, order = mr.HostMemoryResource(), Gate(), list[str]()
    block = heap.allocate(64)
    with Stream(host()) as slow, Stream(host()) as fast:
        gate.hold(slow)
        for stream, name in ((slow, "slow"), (fast, "fast")):
            with heap.launch(stream) as use:
                use.read(block)
                stream.launch(order.append, name)
        fast.synchronize()
        assert order == ["fast"]
        gate.open()


def test_work_of_one_stream_does_not_wait_for_itself() -> None:
    heap, gate = mr.HostMemoryResource(), Gate()
    block = heap.allocate(64)
    with Stream(host()) as stream:
        gate.hold(stream)
        for _ in range(3):
            with heap.launch(stream) as use:
                use.read_write(block)
                use.read(block)
                use.write(block)
        gate.open()


def test_uses_count_even_if_the_body_raises() -> None:
    heap, gate = mr.HostMemoryResource(), Gate()
    block = heap.allocate(64)
    with Stream(host()) as stream:
        gate.hold(stream)
        with pytest.raises(KeyError), heap.launch(stream) as use:
            use.write(block)
            raise KeyError
        heap.deallocate(block)
        assert block.state == "retired"
        gate.open()
        stream.synchronize()
        heap.reap_pending()
        assert block.state == "freed"


def test_blocks_of_several_resources_may_be_used_together() -> None:
    heap, pool = mr.HostMemoryResource(), mr.PoolMemoryResource(mr.HostMemoryResource())
    a, b, gate = heap.allocate(64), pool.allocate(64), Gate()
    with Stream(host()) as stream:
        gate.hold(stream)
        with heap.launch(stream) as use:
            use.read(a)
            use.write(b)
        pool.deallocate(b, Stream.default(host()))
        assert b.state == "retired"
        gate.open()


def test_a_stale_block_is_refused_and_what_was_used_before_it_is_recorded() -> None:
    heap, gate = mr.HostMemoryResource(), Gate()
    stale, block = heap.allocate(64), heap.allocate(64)
    heap.deallocate(stale)
    with Stream(host()) as stream:
        gate.hold(stream)
        with pytest.raises(errors.UseAfterFree), heap.launch(stream) as use:
            use.read(block)
            use.read(stale)
        heap.deallocate(block)
        assert block.state == "retired"
        gate.open()


def test_a_stream_that_is_gone_is_refused() -> None:
    heap = mr.HostMemoryResource()
    block = heap.allocate(64)
    stream = Stream(host())
    stream.close()
    with pytest.raises(errors.StreamMisuse), heap.launch(stream) as use:
        use.read(block)
    assert block.state == "live"


@pytest.mark.parametrize("access", ["scribble", "", None, 3, "READ"])
def test_an_access_that_is_none_is_refused(access: str) -> None:
    heap = mr.HostMemoryResource()
    block = heap.allocate(64)
    for call in (heap.prepare_block_use, heap.finish_block_use):
        with pytest.raises(errors.InvalidArgument, match="access is one of"):
            call(block, None, access)


def _uses(recorder: mr.LaunchRecorder) -> list[Callable[[mr.DeviceBlock], None]]:
    return [recorder.read, recorder.write, recorder.read_write]


def test_a_recorder_refuses_what_is_outside_its_with() -> None:
    heap = mr.HostMemoryResource()
    block = heap.allocate(64)
    with Stream(host()) as stream:
        recorder = heap.launch(stream)
        for use in _uses(recorder):
            with pytest.raises(errors.StreamMisuse, match="inside its `with`"):
                use(block)
        with recorder:
            recorder.read(block)
        for use in _uses(recorder):
            with pytest.raises(errors.StreamMisuse, match="inside its `with`"):
                use(block)
        with pytest.raises(errors.StreamMisuse, match="used before"), recorder:
            pass


def test_a_recorder_is_not_entered_inside_itself() -> None:
    heap = mr.HostMemoryResource()
    block = heap.allocate(64)
    with Stream(host()) as stream, heap.launch(stream) as use:
        with pytest.raises(errors.StreamMisuse, match="used before"), use:
            pass
        use.read(block)
        with heap.launch() as inner:
            inner.read(block)
            use.write(block)


def test_recorders_come_from_a_resource() -> None:
    with pytest.raises(TypeError, match=r"come from DeviceMemoryResource\.launch"):
        mr.LaunchRecorder()
