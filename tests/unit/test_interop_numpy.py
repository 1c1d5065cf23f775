"""NumPy arrays whose memory comes from our resources, with the real NumPy."""

import gc
import pickle
import weakref
from functools import partial

import numpy as np
import pytest
from numpy._core.multiarray import get_handler_name

from tensormem import errors, mr
from tensormem.interop.numpy import use


@pytest.fixture
def host() -> mr.HostMemoryResource:
    return mr.HostMemoryResource()


def test_arrays_made_inside_come_from_the_resource_and_go_back_to_it(host: mr.HostMemoryResource) -> None:
    with use(host):
        array = np.arange(1000.0)
        assert get_handler_name(array) == "tensormem"
        assert host.bytes_outstanding == array.nbytes
        del array
        assert host.bytes_outstanding == 0
    assert get_handler_name() == "default_allocator"
    outside = np.arange(1000.0)
    assert get_handler_name(outside) == "default_allocator"
    assert host.bytes_outstanding == 0


def test_an_array_outlives_the_with_and_the_resource_variable() -> None:
    host = mr.HostMemoryResource()
    seen = weakref.ref(host)
    with use(host):
        array = np.arange(10)
    del host
    gc.collect()
    kept = seen()
    assert kept is not None and kept.bytes_outstanding == array.nbytes
    del kept
    assert array.sum() == 45
    del array
    gc.collect()
    assert seen() is None


def test_a_view_keeps_the_memory(host: mr.HostMemoryResource) -> None:
    with use(host):
        view = np.arange(1000)[10:12]
    assert host.bytes_outstanding == 8000
    assert view.tolist() == [10, 11]
    del view
    assert host.bytes_outstanding == 0


def test_nested_uses_take_the_innermost_and_restore_the_outer(host: mr.HostMemoryResource) -> None:
    inner = mr.HostMemoryResource()
    with use(host):
        with use(inner):
            array = np.empty(100, np.uint8)
        second = np.empty(10, np.uint8)
        assert (inner.bytes_outstanding, host.bytes_outstanding) == (100, 10)
    del array, second
    assert (inner.bytes_outstanding, host.bytes_outstanding) == (0, 0)


def test_an_exception_inside_restores_what_was_before(host: mr.HostMemoryResource) -> None:
    with pytest.raises(KeyError), use(host):
        raise KeyError
    assert get_handler_name() == "default_allocator"


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (), (1,), (17,), (1 << 20,), (64 << 20,)])
def test_arrays_of_every_size_can_be_written_and_read(host: mr.HostMemoryResource, shape: tuple[int, ...]) -> None:
    with use(host):
        array = np.full(shape, 7, np.uint8)
    assert host.bytes_outstanding == max(array.nbytes, 1)
    assert array.shape == shape and bool((array == 7).all())
    assert array.ctypes.data % 64 == 0
    del array
    assert host.bytes_outstanding == 0


def test_zeros_are_zero_in_memory_that_was_used_before() -> None:
    pool = mr.PoolMemoryResource(mr.HostMemoryResource(), "1MiB")
    with use(pool):
        for nbytes in (1, 100, 4096, 100_000):
            np.full(nbytes, 0xFF, np.uint8)
            assert not np.zeros(nbytes, np.uint8).any()
            assert not np.zeros(nbytes // 8 + 1, object).any()


def test_resize_in_place_keeps_the_contents_inside_and_outside(host: mr.HostMemoryResource) -> None:
    with use(host):
        array = np.arange(1000)
        array.resize(3000, refcheck=False)
        assert array[:1000].tolist() == list(range(1000)) and not array[1000:].any()
    array.resize(10, refcheck=False)
    assert array.tolist() == list(range(10))
    assert host.bytes_outstanding == 80
    array.resize(0, refcheck=False)
    array.resize(5, refcheck=False)
    del array
    assert host.bytes_outstanding == 0


def test_numpy_functions_that_copy_and_grow_work(host: mr.HostMemoryResource) -> None:
    with use(host):
        array = np.append(np.resize(np.arange(5), 12), [99])
        assert array.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 99]
        assert np.sort(array)[::-1][0] == 99
        assert np.concatenate([array, array]).sum() == 2 * array.sum()
        assert np.linalg.inv(np.eye(50) * 2)[3, 3] == 0.5
        assert np.array([["a", "bc"], ["d", "e"]]).T.copy()[1, 0] == "bc"
        assert np.array([{"a": 1}, None, "x"])[0] == {"a": 1}
        assert np.fromiter((i for i in range(1000)), int).sum() == 499500
        record = np.zeros(3, [("a", "i4"), ("b", "f8")])
        record["b"] = 1.5
        assert record["b"].sum() == 4.5
    del array, record
    assert host.bytes_outstanding == 0


def test_a_refusal_is_a_memory_error_that_says_why_and_loses_nothing(host: mr.HostMemoryResource) -> None:
    limited = mr.LimitingResourceAdaptor(host, 10_000)
    with use(limited) as allocator:
        kept = np.ones(1000)
        grow = partial(kept.resize, 2000, refcheck=False)
        for make in (partial(np.empty, 1000), partial(np.zeros, 1000), grow):
            before = allocator.failures
            with pytest.raises(MemoryError):
                make()
            assert allocator.failures == before + 1
            assert limited.bytes_outstanding == 8000
        error = allocator.last_error
        assert isinstance(error, errors.OutOfBudget) and (error.requested, error.remaining) == (16000, 2000)
        assert kept.sum() == 1000
    with pytest.raises(MemoryError) as caught, use(limited):
        np.empty(1 << 20)
    assert isinstance(caught.value, errors.OutOfBudget) and "budget of 10,000" in str(caught.value)
    assert caught.value.report().layers and isinstance(caught.value.__cause__, MemoryError)
    del kept, grow, make
    assert limited.bytes_outstanding == 0


def test_a_memory_error_of_somebody_else_gets_no_note(host: mr.HostMemoryResource) -> None:
    with pytest.raises(MemoryError) as caught, use(host) as allocator:
        raise MemoryError
    assert not hasattr(caught.value, "__notes__")
    assert (allocator.failures, allocator.last_error) == (0, None)


def test_an_array_can_shrink_where_no_second_one_fits(host: mr.HostMemoryResource) -> None:
    limited = mr.LimitingResourceAdaptor(host, 1000)
    with use(limited) as allocator:
        array = np.arange(100, dtype=np.uint64)
        array.resize(50, refcheck=False)
        assert array.tolist() == list(range(50))
        assert allocator.failures == 0
    del array
    assert limited.bytes_outstanding == 0


def test_allocations_carry_the_tag_numpy_or_the_one_given(host: mr.HostMemoryResource) -> None:
    with use(mr.FaultInjectionResourceAdaptor(host, tag="numpy", every=1)), pytest.raises(MemoryError):
        np.empty(10)
    with use(mr.FaultInjectionResourceAdaptor(host, tag="images", every=1), tag="images"), pytest.raises(MemoryError):
        np.empty(10)
    with use(mr.FaultInjectionResourceAdaptor(host, tag="images", every=1)):
        np.empty(10)


def test_arrays_pickle_inside_and_outside(host: mr.HostMemoryResource) -> None:
    with use(host):
        array = np.arange(1000).reshape(10, 100)
        buffers: list[pickle.PickleBuffer] = []
        stored = pickle.dumps(array), pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
        twin = pickle.loads(stored[0])
    outside = pickle.loads(stored[0])
    shared = pickle.loads(stored[1], buffers=buffers)
    for copy in (twin, outside, shared):
        assert np.array_equal(copy, array)
    assert np.shares_memory(shared, array)
    del array, twin, copy, buffers
    assert host.bytes_outstanding == 8000  # the shared one still has it
    del shared
    assert host.bytes_outstanding == 0
