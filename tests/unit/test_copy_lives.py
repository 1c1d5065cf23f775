"""The life of a copy: what it touches retires in stream order, is reaped when memory is needed, never waited for."""

import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import tensormem as tm
from tensormem import errors
from tensormem._core import held_for_streams, reap_streams
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing import simulated_gpu
from tensormem.testing.gpus import SimulatedGpu
from tensormem.testing.resources import Gate

MIB = 1 << 20


@pytest.fixture(params=["cuda", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    with simulated_gpu(memory="64MiB", vendor=request.param) as made:
        yield made


def test_a_thousand_batches_pass_through_one_and_a_tenth_of_a_batch(gpu: SimulatedGpu) -> None:
    batch = tm.zeros(MIB, "uint8")
    limited = tm.mr.LimitingResourceAdaptor(tm.mr.GpuMemoryResource(gpu.drivers[0]), MIB * 11 // 10)
    with tm.use_resource(limited):
        for _ in range(1000):
            x = batch.to("gpu:0")
            x.wait()
            del x
    limited.reap_pending()
    assert limited.bytes_outstanding == 0


def test_a_second_large_batch_fits_once_the_first_is_dropped(gpu: SimulatedGpu) -> None:
    batch = tm.zeros(40 * MIB, "uint8")
    for _ in range(3):
        x = batch.to("gpu:0")
        x.wait()
        del x


def test_a_thousand_batches_of_main_memory_pass_on_a_stream() -> None:
    batch = tm.zeros(MIB, "uint8")
    limited = tm.mr.LimitingResourceAdaptor(tm.mr.HostMemoryResource(), MIB * 11 // 10)
    with Stream(host()) as stream, tm.use_resource(limited):
        for _ in range(1000):
            x = tm.empty(MIB, "uint8")
            x.copy_(batch, stream=stream)
            x.wait()
            del x
    limited.reap_pending()
    assert limited.bytes_outstanding == 0


def test_a_queued_copy_of_a_dropped_source_waits_for_nothing(gpu: SimulatedGpu) -> None:
    with Stream(gpu.drivers[0]) as first, Stream(gpu.drivers[0]) as second:
        to, source = tm.empty(1000, space="gpu:0"), tm.zeros(1000, space="gpu:0")
        source.wait()
        before = Gate()
        before.hold(first)
        old = tm.from_buffer(bytearray(4000), "float32").to("gpu:0", stream=first)
        del old  # under way: nothing is freed yet
        before.open()
        first.synchronize()
        gate = Gate()
        gate.hold(second)
        done = threading.Event()

        def copy() -> None:
            for _ in range(20):
                to.copy_(source, stream=second)
            done.set()

        thread = threading.Thread(target=copy)
        thread.start()
        try:
            assert done.wait(20)
        finally:
            gate.open()
            thread.join()
        to.wait()


def test_copies_in_a_loop_on_one_stream_keep_their_books() -> None:
    with Stream(host()) as stream:
        to, source = tm.zeros(64), tm.from_numpy(np.ones(64, np.float32))
        for _ in range(5000):
            to.copy_(source, stream=stream)
        to.wait()
        assert to.tolist() == [1.0] * 64
    reap_streams()
    assert held_for_streams() == 0


def test_memory_of_others_is_held_until_the_stream_has_passed_and_let_go_by_the_next_allocation() -> None:
    gate = Gate()
    with Stream(host()) as stream:
        to = tm.zeros(1000)
        gate.hold(stream)
        array = np.ones(1000, np.float32)
        gone = weakref.ref(array)
        to.copy_(tm.from_numpy(array), stream=stream)
        del array
        tm.empty(1)
        assert gone() is not None
        gate.open()
        to.wait()
        tm.empty(1)
        assert gone() is None


def test_a_held_source_is_let_go_before_a_shortage_is_raised(gpu: SimulatedGpu) -> None:
    limited = tm.mr.LimitingResourceAdaptor(tm.mr.HostMemoryResource(), MIB)
    with Stream(gpu.drivers[0]) as stream:
        for _ in range(5):
            source = tm.zeros(MIB, "uint8", mr=limited)
            away = source.to("gpu:0", stream=stream)
            del source
            away.wait()
    assert reap_streams() == 1


def test_closing_memory_of_others_under_a_queued_copy_releases_it_behind_the_copy() -> None:
    gate = Gate()
    released: list[int] = []

    class Owner:
        def __init__(self) -> None:
            self.array = np.full(1000, 5.0, np.float32)

        def release(self) -> None:
            released.append(1)
            self.array[:] = 0

    with Stream(host()) as stream:
        to = tm.zeros(1000)
        owner = Owner()
        source = tm.from_pointer(owner.array.ctypes.data, 4000, "float32", owner=owner)
        gate.hold(stream)
        to.copy_(source, stream=stream)
        source.close()
        assert source.closed and not released
        with pytest.raises(errors.UseAfterFree):
            source.clone()
        gate.open()
        to.wait()
        tm.empty(1)
        assert released == [1] and to.tolist() == [5.0] * 1000


def test_closing_a_source_of_ours_under_a_queued_copy_retires_its_block() -> None:
    gate = Gate()
    stack = tm.mr.HostMemoryResource()
    with Stream(host()) as stream:
        to, source = tm.zeros(1000), tm.full(1000, 6.0, mr=stack)
        gate.hold(stream)
        to.copy_(source, stream=stream)
        source.close()
        assert stack.bytes_outstanding == 4000
        gate.open()
        assert to.wait().tolist() == [6.0] * 1000
    stack.reap_pending()
    assert stack.bytes_outstanding == 0


def test_retired_blocks_do_not_pile_up_until_memory_is_short() -> None:
    stack = tm.mr.HostMemoryResource()
    source = tm.zeros(1000)
    with Stream(host()) as stream:
        for _ in range(200):
            tm.empty(1000, mr=stack).copy_(source, stream=stream)
            stream.synchronize()
        assert stack.bytes_outstanding <= 5 * 4000


def test_a_copy_that_fails_half_way_keeps_what_its_streams_may_touch(gpu: SimulatedGpu) -> None:
    with Stream(gpu.drivers[0]) as stream:
        source = tm.zeros(16 * MIB, "uint8")
        source.to("gpu:0", stream=stream).wait()
        gate = Gate()
        gate.hold(stream)
        copies = [line.split()[1].partition("(")[0] for line in gpu.log() if "emcpy" in line]
        gpu.fail(copies[-1], nth=3)
        try:
            with pytest.raises(errors.TensormemError):
                source.to("gpu:0", stream=stream)
        finally:
            gate.open()
        stream.synchronize()
    del source
    reap_streams()
    assert held_for_streams() == 0
