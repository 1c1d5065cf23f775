"""Block ids and stream ids: values that name a block or a stream, taken wherever one is asked for."""

import copy
import pickle
from collections.abc import Callable

import pytest

import tensormem as tm
from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream, StreamId
from tensormem.testing.resources import Gate

STACKS: list[Callable[[], mr.DeviceMemoryResource]] = [
    mr.HostMemoryResource,
    lambda: mr.PoolMemoryResource(mr.HostMemoryResource()),
    lambda: mr.BinningMemoryResource(mr.HostMemoryResource(), 6, 10),
    lambda: mr.ArenaMemoryResource(mr.HostMemoryResource()),
    lambda: mr.LimitingResourceAdaptor(mr.PoolMemoryResource(mr.HostMemoryResource()), "1GiB"),
    lambda: mr.DebugGuardResourceAdaptor(mr.HostMemoryResource()),
]


def test_a_block_id_is_a_value() -> None:
    heap = mr.HostMemoryResource()
    first, second = heap.allocate(64), heap.allocate(64)
    assert first.id == first.id and first.id != second.id and first.id != first.id.generation
    assert hash(first.id) == hash(first.id) and len({first.id, first.id, second.id}) == 2
    assert first.id < second.id and first.id <= first.id and second.id > first.id and second.id >= second.id
    assert (first.id.ptr, first.id.generation, first.id.device_ordinal) == (first.ptr, first.generation, 0)
    assert copy.deepcopy(first.id) is not None and copy.copy(first.id) == first.id
    assert f"{first.ptr:#x}" in repr(first.id)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(first.id)
    with pytest.raises(TypeError, match="come from"):
        mr.BlockId()


@pytest.mark.parametrize("make", STACKS)
def test_uses_are_ordered_and_recorded_by_block_id(make: Callable[[], mr.DeviceMemoryResource]) -> None:
    resource, gate, order = make(), Gate(), list[str]()
    block = resource.allocate(64)
    name = block.id
    with Stream(host()) as writer, Stream(host()) as reader:
        gate.hold(writer)
        resource.prepare_block_use(name, writer, "write")
        writer.launch(order.append, "write")
        resource.finish_block_use(name, writer.id, "write")
        with resource.launch(reader.id) as use:
            use.read(name)
            reader.launch(order.append, "read")
        assert order == []
        gate.open()
        reader.synchronize()
        resource.record_block_use(name, reader)
    assert order == ["write", "read"]
    resource.deallocate(block)
    for call in (resource.prepare_block_use, resource.finish_block_use):
        with pytest.raises(errors.UseAfterFree):
            call(name, None, "read")
    with pytest.raises(errors.UseAfterFree), resource.launch() as use:
        use.write(name)


@pytest.mark.parametrize("make", STACKS)
def test_the_id_of_a_foreign_block_is_refused(make: Callable[[], mr.DeviceMemoryResource]) -> None:
    resource, other = make(), make()
    block = other.allocate(64)
    for call in (resource.prepare_block_use, resource.finish_block_use):
        with pytest.raises(errors.ForeignBlock):
            call(block.id, None, "read")
    with pytest.raises(errors.ForeignBlock), resource.launch() as use:
        use.read(block.id)
    if resource.upstream_mr is not None:
        with pytest.raises(errors.ForeignBlock):
            resource.upstream_mr.record_block_use(resource.allocate(64).id, None)


@pytest.mark.parametrize("nonsense", [None, 3, "block", object(), (1, 2, 3, 4)])
def test_what_is_neither_a_block_nor_an_id_is_refused(nonsense: object) -> None:
    heap = mr.HostMemoryResource()
    with pytest.raises(TypeError, match="a block is a DeviceBlock or its BlockId"):
        heap.record_block_use(nonsense, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a block is a DeviceBlock or its BlockId"), heap.launch() as use:
        use.read(nonsense)  # type: ignore[arg-type]


def test_a_block_and_its_id_are_one_use() -> None:
    heap = mr.HostMemoryResource()
    block = heap.allocate(64)
    with Stream(host()) as stream, heap.launch(stream) as use:
        use.read(block)
        use.write(block.id)
        use.read_write(block)


def test_a_stream_id_is_a_value() -> None:
    with Stream(host()) as first, Stream(host()) as second:
        assert type(first.id) is StreamId is tm.StreamId
        assert first.id == first.id and first.id != second.id and first.id == int(first.id)
        assert {first.id, first.id, second.id} == {first.id, second.id}
        assert sorted([first.id, second.id]) == sorted([second.id, first.id])
        assert first.id.__index__() == int(first.id) and first.id.driver is host()
        assert copy.deepcopy(first.id) == first.id
        assert pickle.loads(pickle.dumps(first.id)) == int(first.id)
        assert type(pickle.loads(pickle.dumps(first.id))) is int
    with pytest.raises(TypeError, match="come from"):
        StreamId(3)


def test_every_call_that_takes_a_stream_takes_its_id() -> None:
    heap, driver = mr.HostMemoryResource(), host()
    source, target = heap.allocate(64), heap.allocate(64)
    tensor, copied = tm.zeros(16), tm.zeros(16)
    with Stream(driver) as stream:
        event = stream.record()
        event.record(stream.id)
        driver.copy(target, source, 64, stream.id)
        driver.fill(target, 0, 1, (64, 1, 1), stream.id)
        copied.copy_(tensor, stream=stream.id)
        moved = tensor.to("pinned", stream=stream.id)
        block = heap.allocate(64, stream.id, tag="x")
        heap.deallocate(block, stream.id)
        stream.synchronize()
        moved.wait()
        assert event.done
    calls: list[Callable[[], object]] = [
        lambda: event.record(stream_id),
        lambda: driver.copy(target, source, 64, stream_id),
        lambda: copied.copy_(tensor, stream=stream_id),
        lambda: tensor.to("pinned", stream=stream_id),
        lambda: heap.allocate(64, stream_id),
        lambda: heap.prepare_block_use(source, stream_id, "read"),
    ]
    with Stream(driver) as gone:
        stream_id = gone.id
    for call in calls:
        with pytest.raises(errors.StreamMisuse, match="destroyed"):
            call()


def test_the_id_of_a_stream_of_another_driver_is_refused() -> None:
    from tensormem.testing.gpus import simulated_gpu

    with simulated_gpu(devices=1), Stream(tm.drivers.get("cuda:0")) as stream:
        assert stream.id != Stream.default(host()).id
        with pytest.raises(errors.StreamMisuse, match="another driver"):
            mr.HostMemoryResource().allocate(64, stream.id)
        assert mr.GpuMemoryResource(0).allocate(64, stream.id).alloc_stream == stream.id
