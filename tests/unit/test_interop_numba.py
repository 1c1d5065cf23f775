"""Numba's memory manager, with the real classes of Numba.

Without CUDA Numba can build and check a memory manager, and pointers with their finalizers work; contexts and kernels
cannot run, so a stand-in says which device a context is of.
"""

import gc
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tensormem import errors, mr
from tensormem.interop.numba import memory_manager


class Reachable(mr.HostMemoryResource):
    """Host memory that says a GPU reaches it, to get past that check where there is none."""

    is_device_accessible = property(lambda self: True)


class ReachableLimit(mr.LimitingResourceAdaptor):
    """The same of a limit over it."""

    is_device_accessible = property(lambda self: True)


class Context:
    def __init__(self, device: int = 0) -> None:
        self.device = SimpleNamespace(id=device)


@pytest.fixture(scope="module")
def cuda() -> Any:
    return pytest.importorskip("numba.cuda", reason="numba is not installed")


def test_numba_accepts_the_manager(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = sys.modules["numba.cuda.cudadrv.driver"]
    monkeypatch.setattr(driver, "_memory_manager", driver._memory_manager)
    manager = memory_manager(Reachable())
    assert issubclass(manager, cuda.HostOnlyCUDAMemoryManager)
    cuda.set_memory_manager(manager)
    assert driver._memory_manager is manager


def test_memory_comes_from_the_resource_and_goes_back_with_the_pointer(cuda: Any) -> None:
    resource = Reachable()
    manager = memory_manager(resource)(context=Context())
    manager.initialize()
    pointer = manager.memalloc(1000)
    assert isinstance(pointer, cuda.MemoryPointer)
    assert pointer.device_pointer_value % 256 == 0 and pointer.size == 1000
    assert resource.bytes_outstanding == 1000
    view = pointer.view(100, 200)
    assert view.device_pointer_value == pointer.device_pointer_value + 100
    del pointer, view
    gc.collect()
    assert resource.bytes_outstanding == 0


def test_free_gives_the_memory_back_at_once_and_only_once(cuda: Any) -> None:
    resource = Reachable()
    pointer = memory_manager(resource)(context=Context()).memalloc(1000)
    pointer.free()
    assert resource.bytes_outstanding == 0
    with pytest.raises(RuntimeError, match="dead"):
        pointer.free()


def test_memory_info_is_the_drivers(cuda: Any) -> None:
    info = memory_manager(Reachable())(context=Context()).get_memory_info()
    assert isinstance(info, cuda.MemoryInfo) and 0 < info.free <= info.total


@pytest.mark.usefixtures("cuda")
def test_a_refusal_is_a_memory_error_and_a_reset_forgets_nothing() -> None:
    limited = ReachableLimit(Reachable(), 1000)
    manager = memory_manager(limited)(context=Context())
    pointer = manager.memalloc(600)
    with pytest.raises(errors.OutOfBudget):
        manager.memalloc(600)
    manager.reset()
    with manager.defer_cleanup():
        assert limited.bytes_outstanding == 600
    del pointer
    gc.collect()
    assert limited.bytes_outstanding == 0


@pytest.mark.usefixtures("cuda")
def test_a_context_of_another_device_is_refused() -> None:
    class Remote(Reachable):
        is_host_accessible = property(lambda self: False)

    with pytest.raises(errors.InvalidArgument, match="device 3"):
        memory_manager(Remote())(context=Context(3)).initialize()


def test_memory_that_no_gpu_reaches_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="GPU can touch"):
        memory_manager(mr.HostMemoryResource())
