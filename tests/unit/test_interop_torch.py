"""The C functions behind PyTorch's pluggable allocator, called as torch calls them: by name, through ctypes.

The function that throws is called here where it succeeds; native/tests/test_device_hooks.cpp catches what it throws.
"""

import ctypes
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tensormem import Stream, drivers, errors, mr
from tensormem.interop import torch as interop
from tensormem.streams import StreamLike

PATH, ALLOCATE, DEALLOCATE = interop.allocator_path_and_names()
_library = ctypes.CDLL(PATH)
_library.tensormem_allocate.restype = getattr(_library, ALLOCATE).restype = ctypes.c_void_p
for _name in ("tensormem_allocate", ALLOCATE):
    getattr(_library, _name).argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
_library.tensormem_deallocate.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
_library.tensormem_deallocate.restype = None
_library.tensormem_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
_library.tensormem_record_stream.restype = None


def allocate(nbytes: int, device: int = 0, stream: int | None = None) -> int | None:
    pointer: int | None = _library.tensormem_allocate(nbytes, device, stream)
    return pointer


def deallocate(pointer: int | None, nbytes: int = 0, device: int = 0, stream: int | None = None) -> None:
    _library.tensormem_deallocate(pointer, nbytes, device, stream)


@pytest.fixture
def host() -> Iterator[mr.HostMemoryResource]:
    resource = mr.HostMemoryResource()
    interop.register(resource)
    yield resource
    interop.unregister(0)
    resource.reap_pending()
    assert interop.blocks_outstanding() == 0


class Reachable(mr.HostMemoryResource):
    """Host memory that says a GPU reaches it, to get past that check where there is none."""

    is_device_accessible = property(lambda self: True)


def test_the_library_exists_and_exports_both_names() -> None:
    assert os.path.isabs(PATH) and os.path.isfile(PATH)
    assert hasattr(_library, ALLOCATE) and hasattr(_library, DEALLOCATE)


def test_memory_comes_from_the_registered_resource_and_goes_back(host: mr.HostMemoryResource) -> None:
    for name in (ALLOCATE, "tensormem_allocate"):
        pointer = getattr(_library, name)(10_000, 0, None)
        assert host.bytes_outstanding == 10_000 and interop.blocks_outstanding() == 1
        ctypes.memset(pointer, 0x5A, 10_000)
        deallocate(pointer, 10_000)
        assert host.bytes_outstanding == 0


def test_zero_bytes_are_a_null_pointer_and_freeing_null_is_nothing(host: mr.HostMemoryResource) -> None:
    before = interop.failures()
    assert allocate(0) is None and getattr(_library, ALLOCATE)(0, 0, None) is None
    deallocate(None)
    _library.tensormem_record_stream(None, None)
    assert interop.failures() == before


def test_freeing_or_using_an_unknown_pointer_changes_nothing_and_is_told(host: mr.HostMemoryResource) -> None:
    pointer = allocate(100)
    assert pointer is not None
    before = interop.failures()
    deallocate(pointer + 8)
    deallocate(0xDEAD000)
    assert interop.failures() == before + 2 and host.bytes_outstanding == 100
    error = interop.last_error()
    assert isinstance(error, errors.ForeignBlock) and error.address == 0xDEAD000
    _library.tensormem_record_stream(0xDEAD000, None)
    deallocate(pointer)
    deallocate(pointer)
    assert interop.failures() == before + 4 and host.bytes_outstanding == 0


@pytest.mark.parametrize(
    ("nbytes", "device", "kind"),
    [
        (-1, 0, errors.InvalidSize),
        (2**63 - 1, 0, errors.InvalidSize),
        (1 << 60, 0, errors.OutOfMemory),
        (10, 1, errors.InvalidArgument),
        (10, -1, errors.InvalidArgument),
        (10, 1 << 20, errors.InvalidArgument),
    ],
)
def test_what_cannot_be_allocated_is_null_and_told(
    host: mr.HostMemoryResource, nbytes: int, device: int, kind: type[Exception]
) -> None:
    before = interop.failures()
    assert allocate(nbytes, device) is None
    assert interop.failures() == before + 1 and isinstance(interop.last_error(), kind)
    assert host.bytes_outstanding == 0


def test_a_budget_that_is_used_up_is_told_with_its_facts() -> None:
    limited = mr.LimitingResourceAdaptor(mr.HostMemoryResource(), 1000)
    interop.register(limited)
    pointer = allocate(600)
    assert allocate(600) is None
    error = interop.last_error()
    assert isinstance(error, errors.OutOfBudget) and error.remaining == 400
    deallocate(pointer)
    interop.unregister(0)
    assert limited.bytes_outstanding == 0


def test_each_device_has_its_own_resource_and_memory_goes_home_after_a_change() -> None:
    first, second, third = mr.HostMemoryResource(), mr.HostMemoryResource(), mr.HostMemoryResource()
    interop.register(first, 0)
    interop.register(second, 1)
    one, two = allocate(100, 0), allocate(200, 1)
    interop.register(third, 0)
    other = allocate(300, 0)
    assert [each.bytes_outstanding for each in (first, second, third)] == [100, 200, 300]
    interop.unregister(0)
    interop.unregister(1)
    assert allocate(1, 0) is None and allocate(1, 1) is None
    for pointer in (one, two, other):
        deallocate(pointer)
    assert [each.bytes_outstanding for each in (first, second, third)] == [0, 0, 0]


def test_memory_that_is_out_keeps_its_resource() -> None:
    resource = mr.HostMemoryResource()
    seen = weakref.ref(resource)
    interop.register(resource)
    pointer = allocate(100)
    interop.unregister(0)
    del resource
    gc.collect()
    assert seen() is not None
    deallocate(pointer)
    gc.collect()
    assert seen() is None


def test_a_resource_written_in_python_is_called(host: mr.HostMemoryResource) -> None:
    class Counting(mr.DeviceMemoryResource):
        frees = 0

        def deallocate(self, block: mr.DeviceBlock, stream: StreamLike | None = None) -> None:
            self.frees += 1
            super().deallocate(block, stream)

    counting = Counting(host)
    interop.register(counting, tag="model")
    deallocate(allocate(100))
    assert counting.frees == 1 and host.bytes_outstanding == 0


def test_stream_handles_are_those_of_the_driver(host: mr.HostMemoryResource) -> None:
    gate = threading.Event()
    with Stream(drivers.host()) as stream:
        pointer = allocate(100, 0, stream.id)
        stream.launch(gate.wait)
        deallocate(pointer, 100, 0, stream.id)
        host.reap_pending()
        assert host.bytes_outstanding == 100  # its stream has not passed
        gate.set()
        stream.synchronize()
    host.reap_pending()
    assert host.bytes_outstanding == 0


def test_an_unknown_stream_is_refused_and_the_block_stays(host: mr.HostMemoryResource) -> None:
    before = interop.failures()
    assert allocate(100, 0, 123456) is None
    assert isinstance(interop.last_error(), errors.StreamMisuse)
    pointer = allocate(100)
    deallocate(pointer, 100, 0, 123456)
    assert interop.failures() == before + 2 and host.bytes_outstanding == 100
    deallocate(pointer)
    assert host.bytes_outstanding == 0


def test_a_recorded_stream_is_waited_for_as_it_is_when_the_memory_is_freed(host: mr.HostMemoryResource) -> None:
    gate = threading.Event()
    with Stream(drivers.host()) as owner, Stream(drivers.host()) as user:
        pointer = allocate(100, 0, owner.id)
        _library.tensormem_record_stream(pointer, user.id)
        _library.tensormem_record_stream(pointer, user.id)
        user.launch(gate.wait)  # queued after it was recorded, and before the free
        deallocate(pointer, 100, 0, owner.id)
        host.reap_pending()
        assert host.bytes_outstanding == 100
        gate.set()
        user.synchronize()
        owner.synchronize()
    host.reap_pending()
    assert host.bytes_outstanding == 0


def test_eight_threads_allocate_and_free_each_others_memory(host: mr.HostMemoryResource) -> None:
    shared: list[tuple[int, int]] = []
    before = interop.failures()
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        start.wait()
        for turn in range(300):
            nbytes = 1 + (turn * 37 + seed * 101) % 4000
            pointer = allocate(nbytes)
            assert pointer is not None
            ctypes.memset(pointer, seed, nbytes)
            shared.append((pointer, nbytes))
            if turn % 3:
                deallocate(*shared.pop())

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert host.bytes_outstanding == sum(nbytes for _, nbytes in shared)
    assert interop.blocks_outstanding() == len(shared) and interop.failures() == before
    for pointer, nbytes in shared:
        deallocate(pointer, nbytes)
    assert host.bytes_outstanding == 0


def test_bad_registrations_are_refused() -> None:
    host = mr.HostMemoryResource()
    with pytest.raises(errors.InvalidArgument, match="memory resource"):
        interop.register("host")  # type: ignore[arg-type]
    for device in (-1, 128, 1 << 40, "0"):
        with pytest.raises(errors.InvalidArgument, match="device"):
            interop.register(host, device)
    with pytest.raises(errors.InvalidArgument, match="a tag is text"):
        interop.register(host, 0, tag=7)  # type: ignore[arg-type]
    assert allocate(10) is None


# --- With the real torch. Its wheel for CPUs has the Python half of the pluggable allocator. ---


def test_torchs_own_class_finds_our_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    taken: list[tuple[int, int]] = []

    class Taken:
        """What torch's compiled half gives; only a CUDA build has the real one."""

        recorder: int | None = None

        def set_record_stream_fn(self, function: int) -> None:
            self.recorder = function

    def custom_allocator(allocate: int, deallocate: int) -> Any:
        taken.append((allocate, deallocate))
        return Taken()

    monkeypatch.setattr(torch._C, "_cuda_customAllocator", custom_allocator, raising=False)
    resource = Reachable()
    allocator = interop.make_allocator(resource)
    assert isinstance(allocator, torch.cuda.memory.CUDAPluggableAllocator)
    addresses = [
        ctypes.cast(getattr(_library, name), ctypes.c_void_p).value
        for name in (ALLOCATE, DEALLOCATE, "tensormem_record_stream")
    ]
    assert [*taken[0], allocator.allocator().recorder] == addresses
    take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(taken[0][0])
    give = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(taken[0][1])
    pointer = take(512, 0, None)
    assert resource.bytes_outstanding == 512
    give(pointer, 512, 0, None)
    assert resource.bytes_outstanding == 0
    interop.unregister(0)


def test_a_torch_without_cuda_says_so_and_registers_nothing() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if hasattr(torch._C, "_cuda_customAllocator"):
        assert interop.make_allocator(Reachable()) is not None
        interop.unregister(0)
        return
    with pytest.raises(errors.DriverUnavailable, match="built without CUDA"):
        interop.make_allocator(Reachable())
    assert allocate(10) is None


def test_memory_that_no_gpu_reaches_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="GPU can touch"):
        interop.make_allocator(mr.HostMemoryResource())
