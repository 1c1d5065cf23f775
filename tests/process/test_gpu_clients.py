"""The vendors' own Python packages run on the simulated GPU, alone and side by side with tensormem.

Each test is a program in a process of its own, which finds the simulated driver where it would find the real one.
"""

import os
import subprocess
import sys
import textwrap

import pytest

from tensormem.testing.gpus import simulated_environment

BINDINGS = """
    from cuda.bindings import driver as cuda

    def ask(answer):
        assert answer[0] == cuda.CUresult.CUDA_SUCCESS, answer
        return answer[1] if len(answer) == 2 else answer[1:]

    ask(cuda.cuInit(0))
    device = ask(cuda.cuDeviceGet(0))
    context = ask(cuda.cuDevicePrimaryCtxRetain(device))
    ask(cuda.cuCtxPushCurrent(context))
"""
CORE = """
    import numpy as np
    from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions, LegacyPinnedMemoryResource
    from cuda.core import EventOptions, VirtualMemoryResource

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    pinned = LegacyPinnedMemoryResource()

    def as_array(buffer):
        return np.from_dlpack(buffer).view(np.uint8)
"""
REPORT = """
    import ctypes

    def report():
        library = ctypes.CDLL("libcuda.so.1")
        library.tensormem_simgpu_report.restype = ctypes.c_size_t
        text = ctypes.create_string_buffer(65536)
        library.tensormem_simgpu_report(text, ctypes.c_size_t(65536))
        pairs = [line.partition("=") for line in text.value.decode().splitlines()]
        assert not [value for name, _, value in pairs if name == "violation"], text.value.decode()
        return {name: int(value) for name, _, value in pairs}
"""


def run(*parts: str, vendor: str = "cuda") -> None:
    program = "".join(textwrap.dedent(part) for part in parts)
    environment = {**os.environ, **simulated_environment(2, "256MiB", vendor=vendor)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            """
            assert ask(cuda.cuDeviceGetCount()) == 2
            assert ask(cuda.cuDriverGetVersion()) == 13000
            assert b"simulated" in ask(cuda.cuDeviceGetName(64, device))
            assert ask(cuda.cuDeviceTotalMem(device)) == 256 << 20
            assert ask(cuda.cuMemGetInfo()) == (256 << 20, 256 << 20)
            assert ask(cuda.cuDeviceCanAccessPeer(0, 1)) == 1
            """,
            id="devices",
        ),
        pytest.param(
            """
            pointer = ask(cuda.cuMemAlloc(4096))
            sent, got = np.arange(4096, dtype=np.uint8), np.zeros(4096, dtype=np.uint8)
            ask(cuda.cuMemcpyHtoD(pointer, sent.ctypes.data, 4096))
            ask(cuda.cuMemsetD8(int(pointer) + 16, 7, 16))
            ask(cuda.cuMemcpyDtoH(got.ctypes.data, pointer, 4096))
            sent[16:32] = 7
            assert (sent == got).all()
            where = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
            assert ask(cuda.cuPointerGetAttribute(where, pointer)) == cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
            ask(cuda.cuMemFree(pointer))
            assert cuda.cuMemFree(pointer)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
            """,
            id="memory and copies",
        ),
        pytest.param(
            """
            stream = ask(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
            start, end = ask(cuda.cuEventCreate(0)), ask(cuda.cuEventCreate(0))
            ask(cuda.cuEventRecord(start, stream))
            pointer = ask(cuda.cuMemAllocAsync(1 << 20, stream))
            ask(cuda.cuMemsetD32Async(pointer, 1, 1 << 18, stream))
            ask(cuda.cuMemFreeAsync(pointer, stream))
            ask(cuda.cuEventRecord(end, stream))
            ask(cuda.cuStreamWaitEvent(0, end, 0))
            ask(cuda.cuStreamSynchronize(stream))
            assert ask(cuda.cuEventElapsedTime(start, end)) >= 0
            for event in (start, end):
                ask(cuda.cuEventDestroy(event))
            ask(cuda.cuStreamDestroy(stream))
            assert cuda.cuStreamSynchronize(stream)[0] == cuda.CUresult.CUDA_ERROR_INVALID_HANDLE
            """,
            id="streams, events and stream-ordered memory",
        ),
        pytest.param(
            """
            stream = ask(cuda.cuStreamCreate(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
            ask(cuda.cuCtxPopCurrent())
            pointer = ask(cuda.cuMemAllocAsync(1 << 20, stream))
            assert cuda.cuMemAllocAsync(1 << 20, 0)[0] == cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT
            assert cuda.cuMemFreeAsync(pointer, 0)[0] == cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT
            ask(cuda.cuMemFreeAsync(pointer, stream))
            ask(cuda.cuCtxPushCurrent(context))
            ask(cuda.cuStreamDestroy(stream))
            """,
            id="stream-ordered memory with no current context",
        ),
        pytest.param(
            """
            properties = cuda.CUmemAllocationProp()
            properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            properties.location.id = 0
            fd = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            properties.requestedHandleTypes = fd
            minimum = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
            size = ask(cuda.cuMemGetAllocationGranularity(properties, minimum))
            address = ask(cuda.cuMemAddressReserve(2 * size, 0, 0, 0))
            handle = ask(cuda.cuMemCreate(size, properties, 0))
            descriptor = ask(cuda.cuMemExportToShareableHandle(handle, fd, 0))
            again = ask(cuda.cuMemImportFromShareableHandle(descriptor, fd))
            ask(cuda.cuMemMap(address, size, 0, handle, 0))
            ask(cuda.cuMemMap(int(address) + size, size, 0, again, 0))
            right = cuda.CUmemAccessDesc()
            right.location = properties.location
            right.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            ask(cuda.cuMemSetAccess(address, 2 * size, [right], 1))
            ask(cuda.cuMemsetD8(address, 9, size))
            got = np.zeros(size, dtype=np.uint8)
            ask(cuda.cuMemcpyDtoH(got.ctypes.data, int(address) + size, size))
            assert (got == 9).all()
            ask(cuda.cuMemUnmap(address, 2 * size))
            for each in (handle, again):
                ask(cuda.cuMemRelease(each))
            ask(cuda.cuMemAddressFree(address, 2 * size))
            """,
            id="virtual memory, shared by descriptor",
        ),
        pytest.param(
            """
            pointer = ask(cuda.cuMemAllocManaged(4096, cuda.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
            here = cuda.CUmemLocation()
            here.type, here.id = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
            ask(cuda.cuMemAdvise(pointer, 4096, cuda.CUmem_advise.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here))
            ask(cuda.cuMemPrefetchAsync(pointer, 4096, here, 0, 0))
            mine = cuda.CUstream(2)  # the thread's own: the legacy one takes no batches
            parts = [pointer, cuda.CUdeviceptr(int(pointer) + 2048)]
            ask(cuda.cuMemPrefetchBatchAsync(parts, [2048, 2048], 2, [here], [0], 1, 0, mine))
            ask(cuda.cuMemDiscardBatchAsync(parts, [2048, 2048], 2, 0, mine))
            ask(cuda.cuMemDiscardAndPrefetchBatchAsync(parts, [2048, 2048], 2, [here], [0], 1, 0, mine))
            refused = cuda.CUresult.CUDA_ERROR_INVALID_VALUE
            assert cuda.cuMemDiscardBatchAsync(parts, [2048, 4096], 2, 0, mine)[0] == refused
            assert cuda.cuMemDiscardBatchAsync(parts, [2048, 2048], 2, 0, 0)[0] == refused
            ask(cuda.cuCtxSynchronize())
            ask(cuda.cuMemFree(pointer))
            """,
            id="managed memory",
        ),
    ],
)
def test_cuda_bindings_get_what_the_driver_documents(program: str) -> None:
    left = """
        left = {name: count for name, count in report().items() if count and name != "contexts"}
        assert left == {}, left
    """
    run(BINDINGS, "import numpy as np\n", REPORT, program, left)


def test_cuda_core_has_devices_streams_and_events() -> None:
    run(
        CORE,
        REPORT,
        """
        assert len(Device.get_all_devices()) == 2 and "simulated" in device.name
        first = stream.record(options=EventOptions(timing_enabled=True))
        other = device.create_stream()
        other.wait(first)
        last = other.record(options=EventOptions(timing_enabled=True))
        last.sync()
        assert first.is_done and last.is_done and last - first >= 0
        stream.sync()
        """,
    )


def test_cuda_core_buffers_and_pools_move_bytes() -> None:
    run(
        CORE,
        REPORT,
        """
        pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=64 << 20))
        sent, got = pinned.allocate(1 << 20), pinned.allocate(1 << 20)
        as_array(sent)[:] = np.arange(1 << 20, dtype=np.uint8)
        buffer = pool.allocate(1 << 20, stream=stream)
        sent.copy_to(buffer, stream=stream)
        buffer.copy_to(got, stream=stream)
        stream.sync()
        assert (as_array(got) == as_array(sent)).all()
        assert pool.attributes.used_mem_current == 1 << 20
        buffer.fill(5, stream=stream)
        buffer.copy_to(got, stream=stream)
        stream.sync()
        assert (as_array(got) == 5).all()
        buffer.close(stream)
        stream.sync()
        assert pool.attributes.used_mem_current == 0
        assert report()["pool_allocations"] == 0
        """,
    )


def test_cuda_core_virtual_memory_maps_and_unmaps() -> None:
    run(
        CORE,
        REPORT,
        """
        buffer = VirtualMemoryResource(device).allocate(1 << 20)
        assert buffer.size == 2 << 20
        buffer.fill(3, stream=stream)
        got = pinned.allocate(buffer.size)
        buffer.copy_to(got, stream=stream)
        stream.sync()
        assert (as_array(got) == 3).all()
        buffer.close()
        assert report()["mappings"] == report()["reservations"] == 0
        """,
    )


def test_cuda_core_and_tensormem_share_streams_and_memory() -> None:
    run(
        CORE,
        REPORT,
        """
        import tensormem as tm

        driver = tm.drivers.get("cuda:0")
        resource = tm.mr.GpuAsyncMemoryResource(driver)
        block = resource.allocate(4096, stream)
        driver.fill(block.ptr, 0x11, 1, (4096, 1, 1), stream)
        from cuda.core import Buffer

        got = pinned.allocate(4096)
        Buffer.from_handle(block.ptr, 4096).copy_to(got, stream=stream)
        stream.sync()
        assert (as_array(got) == 0x11).all()
        resource.deallocate(block, stream)

        ours = tm.Stream(driver)
        theirs = device.create_stream(ours)
        buffer = DeviceMemoryResource(device).allocate(4096, stream=theirs)
        buffer.fill(0x22, stream=theirs)
        event = ours.record()
        event.synchronize()
        driver.copy(int(got.handle), int(buffer.handle), 4096, ours)
        ours.synchronize()
        assert (as_array(got) == 0x22).all()
        buffer.close(theirs)
        del theirs
        ours.close()
        assert report()["pool_allocations"] == 0
        """,
    )


def test_hip_python_has_memory_streams_events_and_stream_ordered_memory() -> None:
    run(
        """
        import numpy as np
        from hip import hip

        def ask(answer):
            assert int(answer[0]) == 0, answer
            return answer[1] if len(answer) == 2 else answer[1:]

        assert ask(hip.hipGetDeviceCount()) == 2
        assert ask(hip.hipMemGetInfo()) == (256 << 20, 256 << 20)
        sent, got = np.arange(4096, dtype=np.uint8), np.zeros(4096, dtype=np.uint8)
        pointer, stream, event = ask(hip.hipMalloc(4096)), ask(hip.hipStreamCreate()), ask(hip.hipEventCreate())
        ask(hip.hipMemcpyAsync(pointer, sent, 4096, hip.hipMemcpyKind.hipMemcpyHostToDevice, stream))
        ask(hip.hipMemcpyAsync(got, pointer, 4096, hip.hipMemcpyKind.hipMemcpyDeviceToHost, stream))
        ask(hip.hipEventRecord(event, stream))
        ask(hip.hipEventSynchronize(event))
        assert (sent == got).all()
        ask(hip.hipFree(pointer))
        ask(hip.hipEventDestroy(event))
        ask(hip.hipStreamDestroy(stream))
        ordered = ask(hip.hipMallocAsync(1 << 20, None))
        ask(hip.hipFreeAsync(ordered, None))
        ask(hip.hipDeviceSynchronize())
        assert ask(hip.hipMemGetInfo()) == (256 << 20, 256 << 20)

        import tensormem as tm

        driver = tm.drivers.get("rocm:1")
        with tm.Stream(driver) as ours:
            block = tm.mr.GpuAsyncMemoryResource(driver).allocate(4096, ours)
            driver.fill(block.ptr, 9, 1, (4096, 1, 1), ours)
            ours.synchronize()
            ask(hip.hipSetDevice(1))  # device 0 was granted nothing
            ask(hip.hipMemcpy(got, block.ptr, 4096, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
            assert (got == 9).all()
        """,
        vendor="rocm",
    )
