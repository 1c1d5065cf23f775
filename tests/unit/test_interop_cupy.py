"""CuPy's allocator.

CuPy cannot run without the CUDA runtime. So this checks the calls made, against a stand-in; see there.
"""

import gc
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from support.cupy_stand_in import MemoryPointer, UnownedMemory, stand_in_for_cupy
from tensormem import Stream, drivers, errors, mr
from tensormem.interop.cupy import allocator


class Reachable(mr.HostMemoryResource):
    """Host memory that says a GPU reaches it, to get past that check where there is none."""

    is_device_accessible = property(lambda self: True)


class ReachableLimit(mr.LimitingResourceAdaptor):
    """The same of a limit over it."""

    is_device_accessible = property(lambda self: True)


@pytest.fixture
def current() -> Iterator[SimpleNamespace]:
    """CuPy's current device and stream."""
    with stand_in_for_cupy() as now:
        yield now


@pytest.mark.usefixtures("current")
def test_memory_comes_from_the_resource_and_goes_back_with_the_pointer() -> None:
    resource = Reachable()
    pointer = allocator(resource)(1000)
    assert type(pointer) is MemoryPointer and type(pointer.mem) is UnownedMemory
    assert (pointer.mem.size, pointer.mem.device_id, pointer.ptr % 256) == (1000, 0, 0)
    assert pointer.mem._owner.tag == "cupy"
    assert resource.bytes_outstanding == 1000
    del pointer
    gc.collect()
    assert resource.bytes_outstanding == 0


def test_the_block_is_allocated_on_cupys_current_stream(current: SimpleNamespace) -> None:
    with Stream(drivers.host()) as stream:
        current.stream = SimpleNamespace(ptr=stream.id)
        pointer = allocator(Reachable())(1000)
        assert pointer.mem._owner.alloc_stream == stream.id
        del pointer


@pytest.mark.usefixtures("current")
def test_zero_bytes_need_no_memory() -> None:
    resource = Reachable()
    pointer = allocator(resource)(0)
    assert (pointer.ptr, pointer.mem.size, resource.counters["total_count"]) == (0, 0, 0)


@pytest.mark.usefixtures("current")
def test_a_refusal_is_a_memory_error() -> None:
    with pytest.raises(errors.OutOfBudget):
        allocator(ReachableLimit(Reachable(), 100))(1000)


def test_memory_of_another_device_is_refused(current: SimpleNamespace) -> None:
    class Remote(Reachable):
        is_host_accessible = property(lambda self: False)

    current.device = SimpleNamespace(id=3)
    with pytest.raises(errors.InvalidArgument, match="current device is 3"):
        allocator(Remote())(1000)


def test_memory_that_no_gpu_reaches_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="GPU can touch"):
        allocator(mr.HostMemoryResource())
    with pytest.raises(errors.InvalidArgument, match="not str"):
        allocator("gpu:0")  # type: ignore[arg-type]


def test_without_cupy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # as if it were not installed
    with pytest.raises(ModuleNotFoundError, match="pip install cupy"):
        allocator(Reachable())
