"""Tensors over a block cache: slots index them, whatever the size of a block; slots without a block are refused."""

from __future__ import annotations

import gc
from array import array

import numpy
import pytest

from support.holdings import nothing_left_behind
from tensormem import errors
from tensormem.drivers import host
from tensormem.pools import BlockCache
from tensormem.streams import Stream
from tensormem.testing import simulated_gpu
from tensormem.testing.resources import Gate

KIB = 1 << 10
PAGE = 64 * KIB


def refused_slot(cache: BlockCache) -> int:
    return cache.slot_count - 1


# --- One index for all slots ---


@pytest.mark.parametrize("block", ["256KiB", "700KiB", "1025KiB", "96KiB", "2MiB", "2100KiB", 300, "5000KiB"])
def test_a_slot_times_the_stride_is_the_address_of_its_block(block: str | int) -> None:
    with BlockCache("256MiB", block) as cache:
        ids = cache.allocate(min(40, cache.slot_count))
        slots = cache.slots(ids)
        assert sorted(slots) == list(range(len(ids)))
        for slot, address in zip(slots, cache.addresses(ids), strict=True):
            assert address == cache.base_address + slot * cache.block_stride
        assert cache.block_stride % 256 == 0
        assert cache.slot_count * cache.block_stride == cache.capacity


@pytest.mark.parametrize("block", range(PAGE // 16, 3 * PAGE, 1777))
def test_at_most_an_eighth_of_a_frame_is_wasted(block: int) -> None:
    granules = -(-block // 256) * 256
    with BlockCache("64MiB", block, PAGE) as cache:
        assert (cache.block_stride - granules) * 8 <= cache.block_stride


def test_a_tensor_over_all_slots_has_memory_only_behind_blocks() -> None:
    with BlockCache("128GiB", "700KiB") as cache:
        ids = cache.allocate(20)
        tensor = cache.tensor("float16", (2, 16, 8, 128))
        assert tensor.shape == (cache.slot_count, 2, 16, 8, 128)
        array_ = tensor.numpy()
        slots = cache.slots(ids, "int32")
        array_[slots] = numpy.arange(20).reshape(20, 1, 1, 1, 1)
        for number, slot in enumerate(slots):
            assert (array_[slot] == number).all()
            assert tensor[slot, 1, 15, 7, 127].tolist() == number
        assert cache.physical_memory_usage == 9 * cache.page_size  # three frames of three pages
        del array_
        tensor.close()


def test_pytorch_and_jax_index_the_same_memory() -> None:
    torch = pytest.importorskip("torch")
    jnp = pytest.importorskip("jax.numpy")
    with BlockCache("64MiB", "64KiB") as cache:
        ids = cache.allocate(5)
        pages = torch.from_dlpack(cache.tensor("float32", (2, 8192)))
        slots = torch.from_numpy(numpy.asarray(cache.slots(ids)))
        pages[slots] = torch.arange(5.0)[:, None, None]
        assert pages[slots].sum(dim=(1, 2)).tolist() == [number * 16384.0 for number in range(5)]
        assert pages.data_ptr() == cache.base_address
        seen = jnp.from_dlpack(cache.tensor("float32", (2, 8192)))
        assert seen[3, 1, 5] == 3.0
        del pages, seen
        gc.collect()


# --- Slots as arrays ---


def test_slots_come_in_either_width_and_into_an_array_of_the_callers() -> None:
    with BlockCache("64MiB", "64KiB") as cache:
        ids = cache.allocate(7)
        wide, narrow = cache.slots(ids), cache.slots(ids, "int32")
        assert (wide.typecode, narrow.typecode) == ("q", "i")
        assert list(wide) == list(narrow)
        for kind in ("int32", "int64"):
            mine = numpy.full(7, -1, kind)
            assert cache.slots(ids, out=mine) is mine
            assert list(mine) == list(wide)
        with pytest.raises(errors.InvalidArgument):
            cache.slots(ids, "float32")
        for wrong in (numpy.zeros(6, "int32"), numpy.zeros(7, "int16"), numpy.zeros((7, 1), "int32")):
            with pytest.raises(errors.InvalidArgument):
                cache.slots(ids, out=wrong)
            assert not wrong.any()


def test_slots_are_copied_to_a_device_in_one_call() -> None:
    with simulated_gpu(memory="256MiB"), BlockCache("64MiB", "64KiB", device="gpu:0") as cache:
        ids = cache.allocate(9)
        with cache.slots(ids, "int32", device="gpu:0") as slots:
            assert (str(slots.space), str(slots.dtype)) == ("gpu:0", "int32")
            assert slots.to("main").tolist() == list(cache.slots(ids))
        with cache.tensor("float16", (32768,)) as tensor:
            assert str(tensor.space) == "gpu:0"
            assert tensor.ptr == cache.base_address


def test_blocks_are_found_by_their_slots() -> None:
    with BlockCache("64MiB", "64KiB") as cache:
        ids = cache.allocate(7)
        assert cache.blocks_at(cache.slots(ids)) == ids
        stale = cache.slots(ids)
        cache.deallocate(ids[3:4])
        for bad in (stale, array("q", [-1]), array("q", [cache.slot_count])):
            with pytest.raises(errors.NotMapped):
                cache.blocks_at(bad)


# --- What has no block ---


def test_our_own_calls_refuse_a_slot_that_has_no_block() -> None:
    with BlockCache("64MiB", "64KiB") as cache, cache.tensor("int64", (8192,)) as tensor:
        cache.allocate(3)
        empty = tensor[refused_slot(cache)]
        for touch in (
            lambda: empty.tolist(),
            lambda: empty.clone(),
            lambda: empty.to("main", copy=True),
            lambda: empty.fill_(1),
            lambda: empty[0].item(),
            lambda: int(empty[0]),
            lambda: tensor[1:5].clone(),
            lambda: tensor[:3].copy_(tensor[3:6]),
        ):
            with pytest.raises(errors.NotMapped):
                touch()
        assert "[" not in repr(tensor)
        assert tensor[:3].clone().shape == (3, 8192)


def test_the_slot_of_a_freed_block_is_refused_though_its_page_is_there() -> None:
    with BlockCache("64MiB", "64KiB") as cache, cache.tensor("int64", (8192,)) as tensor:
        ids = cache.allocate(3)
        slot = cache.slots(ids[1:2])[0]
        tensor[slot].fill_(7)
        cache.deallocate(ids[1:2])
        with pytest.raises(errors.NotMapped):
            tensor[slot].tolist()
        with pytest.raises(errors.UseAfterFree):
            cache.slots(ids)


def test_ids_of_another_cache_have_no_slots_here() -> None:
    with BlockCache("64MiB", "64KiB") as cache, BlockCache("64MiB", "64KiB") as other:
        foreign = other.allocate(2)
        cache.allocate(2)
        for call in (cache.slots, lambda ids: cache.copy_blocks(ids, ids)):
            with pytest.raises(errors.ForeignBlock):
                call(foreign)


def test_a_tensor_outlives_compaction_and_its_old_slots_are_refused() -> None:
    moves: list[tuple[array[int], array[int]]] = []
    with BlockCache("8MiB", "16KiB", PAGE, release_threshold=0, on_remap=lambda *told: moves.append(told)) as cache:
        ids = cache.allocate(16)
        tensor = cache.tensor("int32", (4096,))
        seen = tensor.numpy()
        before = cache.slots(ids)
        seen[before] = numpy.arange(16)[:, None]
        cache.deallocate([number for place, number in enumerate(ids) if place % 4])
        cache.compact()
        left = ids[::4]
        after = cache.slots(left)
        assert list(seen[after][:, 0]) == [0, 4, 8, 12]
        ((old, new),) = moves
        assert {slot: slot for slot in before[::4]} | dict(zip(old, new, strict=True)) == dict(
            zip(before[::4], after, strict=True)
        )
        for slot in old:
            with pytest.raises(errors.NotMapped):
                tensor[slot].tolist()
        del seen
        tensor.close()


@pytest.mark.parametrize("shape", [(8193,), (0,), (-1, 4), (2, 0)])
def test_a_shape_that_a_block_does_not_hold_is_refused(shape: tuple[int, ...]) -> None:
    with nothing_left_behind(), BlockCache("64MiB", "64KiB") as cache:
        with pytest.raises(errors.InvalidArgument):
            cache.tensor("int64", shape)
        with pytest.raises(errors.InvalidDType):
            cache.tensor("int63")


def test_a_cache_does_not_close_under_a_tensor() -> None:
    cache = BlockCache("64MiB", "64KiB")
    tensor = cache.tensor("int64", (8192,))
    with pytest.raises(errors.StillHeld, match="tensors"):
        cache.close()
    cache.allocate(1)
    array_ = tensor.numpy()
    del tensor
    with pytest.raises(errors.StillHeld):
        cache.close()
    del array_
    gc.collect()
    cache.close()
    with pytest.raises(errors.UseAfterRelease):
        cache.tensor("int64")


# --- Planes ---


@pytest.mark.parametrize("planes", [2, 5])
def test_planes_share_slots_and_move_together(planes: int) -> None:
    with nothing_left_behind(), BlockCache("40MiB", "16KiB", PAGE, planes=planes, release_threshold=0) as cache:
        ids = cache.allocate(16)
        layers = [cache.tensor("float32", (2, 2048), plane=plane).numpy() for plane in range(planes)]
        for plane, layer in enumerate(layers):
            layer[cache.slots(ids)] = (numpy.arange(16) + 100 * plane)[:, None, None]
        assert cache.physical_memory_usage == planes * 4 * PAGE
        cache.deallocate([number for place, number in enumerate(ids) if place % 4])
        done = cache.compact()
        assert (done.blocks_moved, done.bytes_copied, done.pages_released) == (3, planes * 3 * 16 * KIB, planes * 3)
        assert cache.physical_memory_usage == planes * PAGE
        for plane, layer in enumerate(layers):
            assert list(layer[cache.slots(ids[::4])][:, 1, -1]) == [100 * plane + place for place in (0, 4, 8, 12)]
        with cache.view(ids[4], plane=1) as view:
            assert numpy.frombuffer(view, "float32")[0] == 104
        assert cache._is_valid()
        assert cache.stats().live_bytes == planes * 4 * 16 * KIB
        del layer, layers


def test_a_plane_that_does_not_exist_is_refused() -> None:
    for wrong in (0, -1, 1 << 17):
        with pytest.raises(errors.InvalidArgument):
            BlockCache("40MiB", "16KiB", planes=wrong)
    with BlockCache("40MiB", "16KiB", planes=2) as cache:
        for plane in (-1, 2):
            with pytest.raises(errors.InvalidArgument):
                cache.tensor("int8", plane=plane)
            with pytest.raises(errors.InvalidArgument):
                cache.view(cache.allocate(1)[0], plane=plane)


def test_a_budget_counts_all_planes_and_refuses_whole_batches() -> None:
    with BlockCache("40MiB", "64KiB", PAGE, planes=4, physical_limit=10 * PAGE) as cache:
        cache.allocate(2)
        with pytest.raises(errors.OutOfPhysicalMemory) as refused:
            cache.allocate(1)
        assert (refused.value.requested, refused.value.available) == (4 * PAGE, 2 * PAGE)
        assert cache.physical_memory_usage == 8 * PAGE
        assert cache._is_valid()


def test_blocks_are_copied_in_every_plane() -> None:
    with BlockCache("40MiB", "16KiB", PAGE, planes=2) as cache:
        ids = cache.allocate(4)
        for plane in range(2):
            with cache.view(ids[0], plane=plane) as view:
                view[:3] = bytes([plane, 7, 8])
        cache.copy_blocks(ids[:1], ids[3:])
        for plane in range(2):
            with cache.view(ids[3], plane=plane) as view:
                assert bytes(view[:3]) == bytes([plane, 7, 8])
        with pytest.raises(errors.InvalidArgument):
            cache.copy_blocks(ids[:2], ids[3:])


def test_a_copy_on_a_stream_keeps_both_blocks_until_it_has_passed() -> None:
    gate = Gate()
    with Stream(host()) as stream, BlockCache("40MiB", "16KiB", PAGE, release_threshold=0) as cache:
        ids = cache.allocate(2)
        gate.hold(stream)
        try:
            cache.copy_blocks(ids[:1], ids[1:], stream)
            cache.deallocate(ids)
            assert cache.stats().retired_blocks == 2
        finally:
            gate.open()
        stream.synchronize()
        cache.reap_pending()
        assert cache.stats().retired_blocks == 0
