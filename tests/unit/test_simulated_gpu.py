"""The simulated GPU itself: plans, logs, reports, and the order of stream-ordered memory."""

import pytest

from tensormem import drivers, errors, mr
from tensormem.streams import Stream
from tensormem.testing import simulated_gpu
from tensormem.testing.resources import Gate

MIB = 1 << 20


def test_the_nth_call_of_a_function_fails_once() -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        driver = drivers.get("cuda")
        gpu.fail("cuMemCreate", nth=7, result=2)
        handles = [driver.physical_create(2 * MIB) for _ in range(6)]
        assert not gpu.has_failed
        with pytest.raises(errors.OutOfPhysicalMemory) as caught:
            driver.physical_create(2 * MIB)
        assert gpu.has_failed and caught.value.requested == 2 * MIB
        handles.append(driver.physical_create(2 * MIB))
        for handle in handles:
            driver.physical_destroy(handle)
        assert gpu.calls("cuMemCreate") == 8


def test_every_call_is_in_the_log_with_its_answer() -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        resource = mr.GpuMemoryResource()
        block = resource.allocate(4096)
        resource.deallocate(block)
        lines = [line.split(" ", 1)[1] for line in gpu.log()]
        assert "cuMemAlloc(0x1000) -> 0" in lines
        assert f"cuMemFree({block.ptr:#x}) -> 0" in lines


def test_a_delayed_call_still_answers() -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        gpu.delay("cuMemAlloc", 0.001)
        mr.GpuMemoryResource().allocate(64)
        gpu.delay("cuMemAlloc", 0)


COPIES = {"cuda": "cuMemcpyAsync", "rocm": "hipMemcpyAsync"}


@pytest.mark.parametrize("vendor", COPIES)
def test_planned_latency_is_taken_by_the_stream_and_not_by_the_call(vendor: str) -> None:
    with simulated_gpu(memory="64MiB", vendor=vendor) as gpu, Stream(gpu.drivers[0]) as stream:
        block = mr.GpuMemoryResource(gpu.drivers[0]).allocate(1000)
        begun = stream.record(timing=True)
        gpu.delay(COPIES[vendor], 0.2, on="stream")
        gpu.drivers[0].copy(block.ptr, block.ptr + 500, 500, stream)
        end = stream.record(timing=True)
        end.synchronize()
        assert end.seconds_since(begun) >= 0.2
        gpu.delay(COPIES[vendor], 0, on="stream")
        gpu.drivers[0].copy(block.ptr, block.ptr + 500, 500, stream)
        assert stream.record() is not None


def test_a_delay_that_is_none_is_refused() -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        with pytest.raises(errors.InvalidArgument, match="on the call or on the stream"):
            gpu.delay("cuMemAlloc", 1, on="paper")
        for wrong in (-1, float("nan")):
            with pytest.raises(errors.InvalidArgument):
                gpu.delay("cuMemAlloc", wrong)


def test_functions_that_a_runtime_lacks_are_not_found() -> None:
    with (
        pytest.raises(errors.DriverUnavailable, match="has no hipMalloc, hipEventRecord"),
        simulated_gpu(vendor="rocm", without=["hipMalloc", "hipEventRecord"]),
    ):
        pass
    with simulated_gpu(memory="64MiB", vendor="rocm", without=["hipMemCreate", "hipMallocFromPoolAsync"]) as gpu:
        with pytest.raises(errors.NotSupported, match="hipMemCreate"):
            gpu.drivers[0].physical_create("2MiB")
        with pytest.raises(errors.NotSupported, match="no pools"):
            mr.GpuAsyncMemoryResource("rocm:0").allocate(64)
        mr.GpuMemoryResource("rocm:0").allocate(64)


def test_what_is_left_behind_is_reported() -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        driver = drivers.get("cuda")
        driver.reserve(2 * MIB)
        kept = mr.PinnedMemoryResource("cuda").allocate(4096)
    assert gpu.leaks == {"host_allocations": 1, "reservations": 1}
    del kept


def test_nothing_is_left_behind_by_code_that_cleans_up() -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        pool = mr.PoolMemoryResource(mr.GpuAsyncMemoryResource())
        with Stream(pool.driver) as stream:
            pool.deallocate(pool.allocate(MIB, stream), stream)
        del pool
    assert gpu.leaks == {}


@pytest.mark.parametrize("config", [{"memory": "1MiB"}, {"devices": 17}, {"without": "a,b"}, {"peer": 2}])
def test_a_machine_that_cannot_be_built_is_refused(config: dict[str, int]) -> None:
    with pytest.raises(errors.InvalidArgument), simulated_gpu(**config):  # type: ignore[arg-type]
        pass
    with simulated_gpu(memory="32MiB"):
        pass


def test_one_machine_is_on_at_a_time() -> None:
    with simulated_gpu(memory="32MiB") as gpu:
        with pytest.raises(errors.InvalidArgument, match="on already"), simulated_gpu(memory="32MiB"):
            pass
        assert drivers.get("cuda") is gpu.drivers[0]


# --- The order of work is checked ---


def test_memory_used_on_a_stream_that_does_not_wait_for_it_is_seen() -> None:
    with simulated_gpu(memory="64MiB", strict=False) as gpu:
        resource, gate = mr.GpuAsyncMemoryResource(), Gate()
        with Stream(resource.driver) as first, Stream(resource.driver) as second:
            gate.hold(first)
            block = resource.allocate(4096, first)
            resource.driver.fill(block.ptr, 0, 1, (4096, 1, 1), second)
            gate.open()
            resource.deallocate(block, first)
        assert len(gpu.violations()) >= 1 and "not behind its allocation" in gpu.violations()[0]


def test_memory_freed_before_a_use_on_another_stream_is_seen() -> None:
    with simulated_gpu(memory="64MiB", strict=False) as gpu:
        resource = mr.GpuAsyncMemoryResource()
        with Stream(resource.driver) as first, Stream(resource.driver) as second:
            block = resource.allocate(4096, first)
            resource.prepare_block_use(block, second, "write")
            gpu.touch(block.ptr, 4096, second)
            resource.deallocate(block, first)  # without finish_block_use: nobody told the resource
        assert any("not behind a use" in each for each in gpu.violations())


def test_tracked_uses_break_no_order() -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        resource = mr.GpuAsyncMemoryResource()
        with Stream(resource.driver) as first, Stream(resource.driver) as second:
            block = resource.allocate(4096, first)
            with resource.launch(second) as use:
                use.write(block)
                gpu.touch(block.ptr, 4096, second)
            resource.deallocate(block, first)
        assert gpu.violations() == []


def test_a_broken_order_fails_a_strict_simulation() -> None:
    with pytest.raises(AssertionError, match="wrong order"), simulated_gpu(memory="64MiB"):
        resource = mr.GpuAsyncMemoryResource()
        with Stream(resource.driver) as first, Stream(resource.driver) as second:
            block = resource.allocate(4096, first)
            resource.driver.fill(block.ptr, 0, 1, (4096, 1, 1), second)
            resource.deallocate(block, first)


def test_a_stray_kernel_breaks_its_device() -> None:
    with simulated_gpu(memory="64MiB", strict=False) as gpu:
        resource = mr.GpuMemoryResource("cuda:0")
        gpu.touch(resource.allocate(512).ptr + 4096, 1)
        with pytest.raises(errors.DriverError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            resource.allocate(64)


def test_a_pool_over_stream_ordered_memory_keeps_the_order_across_streams() -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        pool, gate = mr.PoolMemoryResource(mr.GpuAsyncMemoryResource()), Gate()
        with Stream(pool.driver) as first, Stream(pool.driver) as second:
            gate.hold(first)
            held = pool.allocate(4096, first)
            other = pool.allocate(4096, second)
            gpu.touch(held.ptr, 4096, first)
            gpu.touch(other.ptr, 4096, second)
            gate.open()
            pool.deallocate(held, first)
            pool.deallocate(other, second)
        assert gpu.violations() == []
