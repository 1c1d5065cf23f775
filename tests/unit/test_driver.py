"""The host driver from Python: devices, copies and fills against NumPy, pinning."""

import ctypes

import numpy as np
import pytest

from support.holdings import held, nothing_left_behind
from tensormem import drivers, errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream

generator = np.random.default_rng(7)


def random_bytes(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return generator.integers(0, 256, shape, dtype=np.uint8)


# --- Who it is ---


def test_there_is_one_host_driver_with_one_device() -> None:
    assert drivers.get("host") is host() is host()
    assert (host().name, host().device_count) == ("host", 1)
    info = host().device_info()
    free, total = host().memory_info()
    assert (info["name"], info["total_bytes"], info["virtual_memory"]) == ("host", total, True)
    assert 0 < free <= total


def test_a_device_that_does_not_exist_is_refused() -> None:
    for device in (1, -1, 1000):
        for call in (host().device_info, host().memory_info, host().granularity):
            with pytest.raises(errors.InvalidArgument):
                call(device)


def test_drivers_are_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match=r"tensormem\.drivers"):
        type(host())()


# --- Copies ---


@pytest.mark.parametrize("on_a_stream", [False, True], ids=["inline", "on a stream"])
@pytest.mark.parametrize("nbytes", [1, 7, 64, 4097, 1 << 20, 3_000_001])
def test_a_copy_copies_every_byte(nbytes: int, on_a_stream: bool) -> None:
    source, target = random_bytes(nbytes), random_bytes(nbytes + 2)
    edges = (target[0], target[-1])
    stream = Stream(host()) if on_a_stream else None
    host().copy(target.ctypes.data + 1, source.ctypes.data, nbytes, stream)
    if stream is not None:
        stream.close()
    assert np.array_equal(target[1:-1], source)
    assert (target[0], target[-1]) == edges


@pytest.mark.parametrize("on_a_stream", [False, True], ids=["inline", "on a stream"])
@pytest.mark.parametrize(
    ("box", "source_room", "target_room"),
    [
        ((5, 1, 1), (5, 1), (5, 1)),
        ((5, 4, 1), (5, 4), (9, 4)),
        ((1, 100, 1), (3, 100), (7, 100)),
        ((4, 33, 2), (4, 40), (8, 33)),
        ((16, 3, 5), (16, 3), (16, 3)),
        ((16, 3, 5), (16, 3), (17, 4)),
        ((13, 7, 3), (20, 9), (13, 8)),
        ((8, 1, 6), (8, 1), (24, 3)),
        ((100_000, 3, 2), (100_001, 3), (100_003, 4)),
    ],
)
def test_a_pitched_copy_copies_the_box_and_nothing_else(
    box: tuple[int, int, int], source_room: tuple[int, int], target_room: tuple[int, int], on_a_stream: bool
) -> None:
    width, height, depth = box
    source = random_bytes(depth, source_room[1], source_room[0])
    target = random_bytes(depth, target_room[1], target_room[0])
    expected = target.copy()
    expected[:, :height, :width] = source[:, :height, :width]
    stream = Stream(host()) if on_a_stream else None
    host().copy_pitched(
        target.ctypes.data,
        target_room[0],
        source.ctypes.data,
        source_room[0],
        box,
        stream,
        destination_plane=target_room[0] * target_room[1],
        source_plane=source_room[0] * source_room[1],
    )
    if stream is not None:
        stream.close()
    assert np.array_equal(target, expected)


@pytest.mark.parametrize("element", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("box", [(8, 1, 1), (40, 1, 1), (24, 5, 1), (16, 3, 4), (1 << 20, 1, 1)])
def test_a_fill_repeats_the_value_over_the_box(element: type[np.unsignedinteger], box: tuple[int, int, int]) -> None:
    width, height, depth = box
    size = np.dtype(element).itemsize
    value = int.from_bytes(random_bytes(size).tobytes(), "little")
    room = random_bytes(depth, height + 1, width + 8)
    expected = room.copy()
    expected[:, :height, :width] = np.full(width // size, value, element).view(np.uint8)
    host().fill(room.ctypes.data, value, size, box, pitch=width + 8, plane=(width + 8) * (height + 1))
    assert np.array_equal(room, expected)


def test_only_the_low_bytes_of_a_fill_count() -> None:
    room = random_bytes(16)
    host().fill(room.ctypes.data, 0x1234, 1, (16, 1, 1))
    assert set(room.tolist()) == {0x34}


def test_copies_take_blocks_as_addresses() -> None:
    heap = mr.HostMemoryResource()
    a, b = heap.allocate(1000), heap.allocate(1000)
    host().fill(a, 0xABCD, 2, (1000, 1, 1))
    host().copy(b, a, 1000)
    assert ctypes.string_at(b.ptr, 1000) == b"\xcd\xab" * 500


def refused_copies() -> dict[str, tuple[type[Exception], tuple[object, ...]]]:
    room = 1 << 20  # an address that nobody touches: every one of these is refused before
    return {
        "of nothing": (errors.InvalidSize, (room, 8, 2 * room, 8, (0, 1, 1))),
        "without rows": (errors.InvalidSize, (room, 8, 2 * room, 8, (8, 0, 1))),
        "without planes": (errors.InvalidSize, (room, 8, 2 * room, 8, (8, 1, 0))),
        "negative": (errors.InvalidSize, (room, 8, 2 * room, 8, (-8, 1, 1))),
        "to null": (errors.InvalidArgument, (0, 8, room, 8, (8, 1, 1))),
        "from null": (errors.InvalidArgument, (room, 8, 0, 8, (8, 1, 1))),
        "with a narrow target": (errors.InvalidArgument, (room, 7, 2 * room, 8, (8, 2, 1))),
        "with a narrow source": (errors.InvalidArgument, (room, 8, 2 * room, 7, (8, 2, 1))),
        "onto itself": (errors.InvalidArgument, (room, 8, room + 4, 8, (8, 1, 1))),
        "beyond all memory": (errors.InvalidSize, (room, 2**62, 2 * room, 2**62, (2**62, 2**62, 1))),
        "beyond the last address": (errors.InvalidSize, (2**64 - 4, 8, room, 8, (8, 1, 1))),
        "of two dimensions": (errors.InvalidArgument, (room, 8, 2 * room, 8, (8, 1))),
        "to a text": (errors.InvalidArgument, ("there", 8, room, 8, (8, 1, 1))),
        "to a huge address": (errors.InvalidArgument, (2**64, 8, room, 8, (8, 1, 1))),
        "to a negative address": (errors.InvalidArgument, (-1, 8, room, 8, (8, 1, 1))),
    }


@pytest.mark.parametrize("name", refused_copies())
def test_a_copy_that_makes_no_sense_is_refused(name: str) -> None:
    error, arguments = refused_copies()[name]
    with pytest.raises(error):
        host().copy_pitched(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "element_bytes", "box", "error"),
    [
        (0, 3, (6, 1, 1), errors.InvalidArgument),
        (0, 0, (8, 1, 1), errors.InvalidArgument),
        (0, 16, (16, 1, 1), errors.InvalidArgument),
        (0, 4, (6, 1, 1), errors.InvalidArgument),
        (-1, 1, (8, 1, 1), errors.InvalidArgument),
        (2**64, 8, (8, 1, 1), errors.InvalidArgument),
        (0, 1, (0, 1, 1), errors.InvalidSize),
        (0, 2**40, (8, 1, 1), errors.InvalidArgument),
    ],
)
def test_a_fill_that_makes_no_sense_is_refused(
    value: int, element_bytes: int, box: tuple[int, int, int], error: type[Exception]
) -> None:
    room = random_bytes(64)
    before = room.copy()
    with pytest.raises(error):
        host().fill(room.ctypes.data, value, element_bytes, box)
    assert np.array_equal(room, before)


# --- Pinning ---


def test_pinned_pages_stay_locked_until_their_last_pin_is_gone() -> None:
    with nothing_left_behind():
        block = mr.HostMemoryResource().allocate("64KiB", alignment=4096)
        before, pins = locked_kib(), held()["pins"]  # others may keep pinned memory for their copies
        host().pin(block, 8192)
        host().pin(block.ptr + 4096, 8192)
        assert (held()["pins"] - pins, locked_kib() - before) == (2, 12)
        host().unpin(block, 8192)
        assert locked_kib() - before == 8
        host().unpin(block.ptr + 4096, 8192)
        assert locked_kib() == before


def locked_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmLck:"))


def test_unpinning_what_is_not_pinned_is_refused() -> None:
    block = mr.HostMemoryResource().allocate("64KiB", alignment=4096)
    with nothing_left_behind():
        host().pin(block, 4096)
        for address, nbytes in ((block.ptr, 8192), (block.ptr + 4096, 4096), (0, 4096)):
            with pytest.raises(errors.InvalidArgument):
                host().unpin(address, nbytes)
        with pytest.raises(errors.InvalidSize):
            host().pin(block, 0)
        host().unpin(block, 4096)
