"""The picture of one moment: every byte counted once, in the space where it is."""

import tensormem as tm
from tensormem._core import abstract_driver
from tensormem.reports.live import take_snapshot
from tensormem.testing import simulated_gpu


def used(snapshot_of: str) -> int:
    return sum(space.used_bytes for space in take_snapshot().spaces if space.name == snapshot_of)


def test_a_block_that_passes_through_a_stack_is_counted_once() -> None:
    before = used("main"), take_snapshot().totals.used_bytes
    host = tm.mr.HostMemoryResource()
    stack = tm.mr.LimitingResourceAdaptor(tm.mr.StatisticsResourceAdaptor(tm.mr.PoolMemoryResource(host)), "64MiB")
    block = stack.allocate("3MiB")
    assert used("main") == before[0] + block.nbytes
    assert take_snapshot().totals.used_bytes == before[1] + block.nbytes


def test_bins_are_counted_with_the_resource_that_has_them() -> None:
    before = used("main")
    binning = tm.mr.BinningMemoryResource(tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource()), 9, 12)
    bins = binning.bin_mrs
    block = binning.allocate(700)
    assert bins and used("main") == before + block.nbytes


def test_each_gpu_is_a_space_with_the_room_that_it_has() -> None:
    with simulated_gpu(devices=2, memory="1GiB"):
        pool = tm.mr.PoolMemoryResource(tm.mr.GpuMemoryResource("cuda:1"))
        block = pool.allocate("4MiB")
        with tm.VirtualMemoryPool("1GiB", device="cuda:0") as elastic:
            held = elastic.allocate(size="2MiB")
            spaces = {space.name: space for space in take_snapshot().spaces}
            assert (spaces["gpu:0"].used_bytes, spaces["gpu:1"].used_bytes) == (held.size, block.nbytes)
            assert spaces["gpu:0"].device_total_bytes == spaces["gpu:1"].device_total_bytes == 2**30
            elastic.deallocate(held)
        pool.deallocate(block)
        del pool, block


def test_memory_that_is_not_there_is_of_no_gpu_and_leaves_main_its_room() -> None:
    before = {space.name for space in take_snapshot().spaces}
    abstract, host = tm.mr.ElasticMemoryResource(abstract_driver()), tm.mr.HostMemoryResource()
    blocks = abstract.allocate("4MiB"), host.allocate("1MiB")
    spaces = {space.name: space for space in take_snapshot().spaces}
    assert set(spaces) == {*before, "main"} and spaces["main"].device_total_bytes == host.driver.memory_info()[1]
    abstract.deallocate(blocks[0])
    host.deallocate(blocks[1])
