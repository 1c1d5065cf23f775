"""The current resource: for the process, and for one thread or asynchronous task."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tensormem import errors, mr
from tensormem.drivers import host


@pytest.fixture(autouse=True)
def the_resource_of_before() -> Iterator[mr.DeviceMemoryResource]:
    before = mr.get_per_device_resource(0)
    yield before
    mr.set_per_device_resource(0, before)


def test_until_one_is_set_it_is_plain_memory(the_resource_of_before: mr.DeviceMemoryResource) -> None:
    assert isinstance(the_resource_of_before, mr.HostMemoryResource)
    assert mr.get_current_device_resource() is mr.get_per_device_resource(0, host()) is the_resource_of_before


def test_what_is_set_serves_the_whole_process() -> None:
    pool = mr.PoolMemoryResource(mr.HostMemoryResource())
    mr.set_current_device_resource(pool)
    seen: list[mr.DeviceMemoryResource] = []
    thread = threading.Thread(target=lambda: seen.append(mr.get_current_device_resource()))
    thread.start()
    thread.join()
    assert seen == [pool]
    assert mr.get_per_device_resource(0) is pool


def test_blocks_stay_with_the_resource_that_made_them() -> None:
    first = mr.get_current_device_resource()
    block = first.allocate(64)
    mr.set_current_device_resource(mr.HostMemoryResource())
    assert block.mr is first
    first.deallocate(block)


def test_use_resource_nests_and_ends_with_its_body() -> None:
    outer, inner = mr.HostMemoryResource(), mr.HostMemoryResource()
    before = mr.get_current_device_resource()
    with pytest.raises(KeyError), mr.use_resource(outer) as entered:
        assert entered is outer
        with mr.use_resource(inner):
            assert mr.get_current_device_resource() is inner
        assert mr.get_current_device_resource() is outer
        assert mr.get_per_device_resource(0) is before
        raise KeyError
    assert mr.get_current_device_resource() is before


def test_use_resource_wins_over_what_is_set_inside_it() -> None:
    mine, everybodys = mr.HostMemoryResource(), mr.HostMemoryResource()
    with mr.use_resource(mine):
        mr.set_current_device_resource(everybodys)
        assert mr.get_current_device_resource() is mine
    assert mr.get_current_device_resource() is everybodys


def test_threads_use_their_own() -> None:
    both_inside, seen = threading.Barrier(2), dict[int, bool]()

    def work(number: int) -> None:
        mine = mr.HostMemoryResource()
        with mr.use_resource(mine):
            both_inside.wait()
            seen[number] = mr.get_current_device_resource() is mine
            both_inside.wait()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {0: True, 1: True}


def test_tasks_use_their_own() -> None:
    async def work(arrive: asyncio.Event, other: asyncio.Event) -> bool:
        mine = mr.HostMemoryResource()
        with mr.use_resource(mine):
            arrive.set()
            await other.wait()
            return mr.get_current_device_resource() is mine

    async def main() -> list[bool]:
        first, second = asyncio.Event(), asyncio.Event()
        return list(await asyncio.gather(work(first, second), work(second, first)))

    assert asyncio.run(main()) == [True, True]


@pytest.mark.parametrize("nonsense", [None, 7, "pool", mr.HostMemoryResource])
def test_what_is_no_resource_is_refused(nonsense: mr.DeviceMemoryResource) -> None:
    before = mr.get_current_device_resource()
    for call in (mr.set_current_device_resource, lambda each: mr.set_per_device_resource(0, each)):
        with pytest.raises(errors.InvalidArgument):
            call(nonsense)
    with pytest.raises(errors.InvalidArgument), mr.use_resource(nonsense):
        pass
    assert mr.get_current_device_resource() is before


def test_a_device_that_does_not_exist_is_refused() -> None:
    for device in (-1, 7):
        with pytest.raises(errors.InvalidArgument):
            mr.get_per_device_resource(device)
        with pytest.raises(errors.InvalidArgument):
            mr.get_current_device_resource(device=device)
    with pytest.raises(errors.InvalidArgument, match="device"):
        mr.set_per_device_resource(1, mr.HostMemoryResource())


def test_a_resource_that_was_never_initialised_is_refused() -> None:
    class Forgetful(mr.DeviceMemoryResource):
        def __init__(self) -> None:
            pass  # without super().__init__()

    before = mr.get_current_device_resource()
    for call in (mr.set_current_device_resource, lambda each: mr.use_resource(each).__enter__()):
        with pytest.raises((errors.InvalidArgument, TypeError), match=r"never initialised|super"):
            call(Forgetful())
    assert mr.get_current_device_resource() is before
