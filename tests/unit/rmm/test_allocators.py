"""The current resource as the allocator of CuPy, Numba and PyTorch."""

import ctypes
import gc
from types import SimpleNamespace

import pytest

from support.cupy_stand_in import stand_in_for_cupy
from tensormem import rmm
from tensormem.interop import torch as interop
from tensormem.rmm.allocators.cupy import rmm_cupy_allocator
from tensormem.rmm.allocators.torch import follow_current_resource, unfollow_current_resource
from tensormem.testing.gpus import SimulatedGpu


def test_cupys_memory_comes_from_the_current_resource(gpu: SimulatedGpu) -> None:
    counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(counted)
    with stand_in_for_cupy(device=0):
        pointer = rmm_cupy_allocator(1000)
        nothing = rmm_cupy_allocator(0)
    assert counted.allocation_counts.current_bytes == 1000 and pointer.mem.ptr and not nothing.mem.ptr
    del pointer
    assert counted.allocation_counts.current_bytes == 0


def test_numbas_memory_comes_from_the_current_resource(gpu: SimulatedGpu) -> None:
    cuda = pytest.importorskip("numba.cuda", reason="numba is not installed")
    from tensormem.rmm.allocators.numba import RMMNumbaManager

    assert issubclass(RMMNumbaManager, cuda.HostOnlyCUDAMemoryManager)
    counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(counted)
    manager = RMMNumbaManager(context=SimpleNamespace(device=SimpleNamespace(id=0)))
    manager.initialize()
    pointer = manager.memalloc(1000)
    assert counted.allocation_counts.current_bytes == 1000 and manager.interface_version == 1
    with pytest.raises(NotImplementedError):
        manager.get_memory_info()
    del pointer
    gc.collect()
    assert counted.allocation_counts.current_bytes == 0


def test_torchs_functions_follow_the_current_resource() -> None:
    library = ctypes.CDLL(interop.allocator_path_and_names()[0])
    library.tensormem_allocate.restype = ctypes.c_void_p
    library.tensormem_allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    library.tensormem_deallocate.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    follow_current_resource()
    try:
        counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.SystemMemoryResource())
        rmm.mr.set_current_device_resource(counted)
        pointer = library.tensormem_allocate(1000, 0, None)
        assert counted.allocation_counts.current_bytes == 1000
        rmm.reinitialize()
        library.tensormem_deallocate(pointer, 1000, 0, None)
        assert counted.allocation_counts.current_bytes == 0
    finally:
        unfollow_current_resource()
        interop.unregister(0)
    rmm.reinitialize()
    assert library.tensormem_allocate(1000, 0, None) is None


def test_torch_without_cuda_has_no_allocator() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if hasattr(torch._C, "_cuda_customAllocator"):
        pytest.skip("this torch has CUDA")
    from tensormem.rmm.allocators.torch import rmm_torch_allocator

    assert rmm_torch_allocator is None
