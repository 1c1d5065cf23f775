"""where: the one resolver, what it understands, what it refuses, and what it says then."""

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

import tensormem as tm
from tensormem import drivers, errors, mr
from tensormem.drivers import Where, plugins, resolve
from tensormem.spaces import ComputeDevice, LogicalMemorySpace
from tensormem.spaces.words import WORDS
from tensormem.testing import simulated_gpu

torch = pytest.importorskip("torch")


class JaxLike:
    """A device as JAX has it."""

    def __init__(self, platform: str, number: Any, local: Any = None) -> None:
        self.platform, self.id, self.local_hardware_id = platform, number, local


class Device:
    """A device of a library that says where it is by its text alone."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


class Printed(Device):
    """Prints like a device, and is none: its type is not called one."""


class Typed:
    """Has the attributes of a device by accident, and does not print like one."""

    type, index = "cuda", 1


class Hostile:
    """Raises whatever is asked of it, but for what it is."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return object.__getattribute__(self, name)
        raise RuntimeError(f"nobody asks me for {name}")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equal")


HostileDevice = type("Device", (Hostile,), {})


# --- What is understood ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kind", "vendor", "number"),
    [
        *((text, "main", None, 0) for text in ("main", "cpu", "host", "cpu:0", "host:0")),
        ("pinned", "pinned", None, 0),
        ("managed", "managed", None, 0),
        ("gpu", "gpu", None, 0),
        ("gpu:7", "gpu", None, 7),
        ("cuda", "gpu", "cuda", 0),
        ("cuda:3", "gpu", "cuda", 3),
        ("rocm:3", "gpu", "rocm", 3),
        ("hip", "gpu", "rocm", 0),
        ("hip:2147483647", "gpu", "rocm", 2147483647),
        (tm.gpu(2), "gpu", None, 2),
        (ComputeDevice("rocm", 2), "gpu", "rocm", 2),
        (ComputeDevice("cpu", 2), "main", None, 2),
        (torch.device("cpu"), "main", None, 0),
        (torch.device("cpu", 1), "main", None, 0),
        (torch.device("cuda"), "gpu", "cuda", 0),
        (torch.device("cuda:4"), "gpu", "cuda", 4),
        (JaxLike("gpu", 1), "gpu", None, 1),
        (JaxLike("cuda", 9, 1), "gpu", "cuda", 1),
        (JaxLike("cpu", 5), "main", None, 0),
        (Device("gpu:1"), "gpu", None, 1),
        (Device("pinned"), "pinned", None, 0),
    ],
)
def test_every_spelling_is_read_as_what_it_means(said: Any, kind: str, vendor: str | None, number: int) -> None:
    where = resolve(said)
    assert (where.kind, where.vendor, where.number) == (kind, vendor, number)
    assert where.space is LogicalMemorySpace(kind, number if kind == "gpu" else 0) is LogicalMemorySpace.parse(said)
    assert resolve(where) is where


def test_all_words_are_one_table() -> None:
    for word in WORDS:
        assert resolve(word).space is LogicalMemorySpace.parse(word)
        with pytest.raises(errors.InvalidArgument):
            drivers.register_driver(word, drivers.host)


def test_torch_for_rocm_says_cuda_and_means_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert str(resolve(torch.device("cuda:1"))) == "rocm:1"
    assert str(resolve("cuda:1")) == "cuda:1"


def test_numbers_are_gpus_only_where_that_is_said() -> None:
    assert resolve(1, ordinals=True).space is tm.gpu(1)
    with pytest.raises(errors.InvalidSpace):
        resolve(1)


@pytest.mark.parametrize(
    ("said", "text"),
    [((1, 0), "main"), ((2, 1), "cuda:1"), ((10, 1), "rocm:1"), ((3, 0), "pinned"), ((13, 0), "managed")],
)
def test_the_two_numbers_of_dlpack_are_taken_where_dlpack_is_spoken(said: tuple[int, int], text: str) -> None:
    assert str(resolve(said, dlpack=True)) == text
    with pytest.raises(errors.InvalidSpace):
        resolve(said)


@pytest.mark.parametrize("bad", [(), (1,), (1, 0, 0), ("cuda", 0), ([1], 0), (2, -1), (2, 2**70), (2, True)])
def test_two_numbers_that_are_none_of_dlpacks_are_refused(bad: Any) -> None:
    with pytest.raises((errors.InvalidSpace, errors.UnknownDeviceType)):
        resolve(bad, dlpack=True)
    with pytest.raises(errors.UnknownDeviceType):
        resolve((99, 0), dlpack=True)


# --- What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        *("", ":", "gpu:", "gpu:01", "gpu:-1", "gpu:+1", "gpu: 1", " gpu", "GPU:0", "cuda:x", "gpu:1:2", "main:0"),
        *("cpu:1", "host:1", "pinned:0", "gpu:2147483648", "gpu:" + "9" * 5000, "gpu:\u0661", "tpu", "tpu:0", "gpu\0"),
        *(None, True, False, 0, -1, 2**70, 1.0, float("nan"), b"gpu:0", bytearray(b"main"), ["main"], {"main"}, (2, 0)),
        *(object(), Printed("gpu:0"), Typed(), Device("<Device 0>"), Device(""), JaxLike("tpu", 0), JaxLike("gpu", -1)),
        *(JaxLike("gpu", True), JaxLike("gpu", "0"), torch.device("meta"), torch.float32),
    ],
    ids=lambda bad: type(bad).__name__,
)
def test_what_means_nothing_is_refused_and_can_be_shown(bad: Any) -> None:
    readers: list[Callable[[Any], object]] = [resolve, LogicalMemorySpace.parse]
    for reader in readers:
        with pytest.raises(errors.InvalidSpace) as caught:
            reader(bad)
        assert str(caught.value) and repr(caught.value)


@pytest.mark.parametrize("make", [Hostile, HostileDevice])
def test_an_object_that_raises_when_it_is_asked_is_refused_like_any_other(make: type) -> None:
    readers: list[Callable[[Any], object]] = [resolve, LogicalMemorySpace.parse, tm.VirtualMemoryManager, drivers.gpu]
    for reader in readers:
        with pytest.raises(errors.InvalidSpace) as caught:
            reader(make())
        assert str(caught.value) and repr(caught.value)


@pytest.mark.parametrize("bad", [True, -1, 2**31, 2**70, 1.0])
def test_a_number_that_no_gpu_has_is_refused(bad: Any) -> None:
    for call in (drivers.gpu, mr.GpuMemoryResource, mr.ManagedMemoryResource, mr.PinnedMemoryResource):
        with pytest.raises(errors.InvalidSpace):
            call(bad)


def test_a_space_that_cannot_serve_is_refused_with_the_true_reason() -> None:
    with pytest.raises(errors.UnsuitableSpace) as caught:
        tm.VirtualMemoryPool("8MiB", device="pinned")
    assert caught.value.space == "pinned"
    for part in ("virtual memory is mapped on main or a GPU", "pinned is main memory", "here there are main, pinned"):
        assert part in caught.value.reason
    assert isinstance(caught.value, errors.InvalidArgument)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_device_that_is_not_there_is_refused_with_what_was_understood_and_what_is_there() -> None:
    with simulated_gpu(devices=1, memory="32MiB", vendor="cuda"):
        with pytest.raises(errors.DriverUnavailable) as caught:
            drivers.get("hip:0")
        assert caught.value.driver == "rocm:0"
        for part in ("GPU 0 of ROCm is meant", "libamdhip64", "here there are main, pinned, gpu:0 (cuda)"):
            assert part in caught.value.reason
        with pytest.raises(errors.MemoryUnavailable, match="GPU 5 is meant"):
            tm.empty(4, space="gpu:5")


# --- What it is ------------------------------------------------------------------------------------------------------


def test_a_where_is_a_value_that_cannot_be_changed() -> None:
    where = resolve("cuda:1")
    for name in ("kind", "vendor", "number", "space", "new"):
        with pytest.raises(AttributeError):
            setattr(where, name, 1)
        with pytest.raises(AttributeError):
            delattr(where, name)
    assert where == resolve(ComputeDevice("cuda", 1)) and hash(where) == hash(resolve(ComputeDevice("cuda", 1)))
    assert where != resolve("gpu:1") and where != resolve("rocm:1") and where != "cuda:1"
    assert (str(where), repr(where)) == ("cuda:1", "Where('cuda:1')")


def test_a_where_looks_for_its_driver_when_asked_and_not_before() -> None:
    where = resolve("cuda:1")
    with pytest.raises(errors.DriverUnavailable):
        _ = where.driver
    with simulated_gpu(memory="32MiB"):
        assert where.driver is drivers.get("cuda:1") and where.ordinal == 1
        assert where.compute_device is ComputeDevice("cuda", 1)
        assert resolve("pinned").driver is drivers.get("cuda:0") is resolve("managed").driver
    with pytest.raises(errors.DriverUnavailable):
        _ = where.driver
    assert resolve("pinned").driver is drivers.host()


def test_texts_without_end_do_not_fill_memory() -> None:
    for number in range(5000):
        assert resolve(f"gpu:{number}").number == number == LogicalMemorySpace.parse(f"cuda:{number}").device_id
    from tensormem.drivers import where
    from tensormem.spaces import space

    assert len(where._known) <= where._MOST_KNOWN and len(space._read) <= space._MOST_READ


def test_threads_read_the_same() -> None:
    barrier = threading.Barrier(4)
    found: list[tuple[str, Where]] = []

    def race() -> None:
        barrier.wait()
        found.extend((text, resolve(text)) for text in ("main", "gpu:1", "cuda:1", "pinned") for _ in range(200))

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3200 and len(set(found)) == 4


# --- Drivers of other packages ---------------------------------------------------------------------------------------


def test_a_driver_that_another_package_brought_is_found_by_everybody() -> None:
    drivers.register_driver("mine", drivers.host)
    try:
        for said in ("mine", "mine:0"):
            assert resolve(said).driver is drivers.host() and resolve(said).space is tm.main
            assert tm.empty(4, space=said).space is tm.main
            assert tm.VirtualMemoryManager(said).where == "host"
        with pytest.raises(errors.DriverUnavailable, match="mine"):
            drivers.get("yours")
        with pytest.raises(errors.InvalidSpace):
            resolve("mine:1")
    finally:
        drivers.unregister_driver("mine")
    with pytest.raises(errors.InvalidSpace):
        resolve("mine")
    assert plugins.opened() == []


# --- Two vendors at once ---------------------------------------------------------------------------------------------


def test_both_vendors_at_once_are_kept_apart() -> None:
    with simulated_gpu(memory="64MiB", vendor="cuda"), simulated_gpu(memory="64MiB", vendor="rocm"):
        for vendor, number in (("cuda", 2), ("rocm", 10)):
            made = tm.full((4, 4), 3, "int32", space=f"{vendor}:1")
            assert made.space is tm.gpu(1) and made.__dlpack_device__() == (number, 1)
            assert tm.VirtualMemoryManager(f"{vendor}:1").where == f"{vendor}:1"
        there = made.to("cuda:1")
        assert there.storage.driver is drivers.get("cuda:1") is tm.empty(1, space="gpu:1").storage.driver
        assert there.to("main").wait().tolist() == [[3] * 4] * 4
        assert made.to("rocm:1") is made is made.to("gpu:1")
        with pytest.raises(errors.CrossSpaceError, match="two vendors"):
            there.copy_(made)
        with pytest.raises(errors.CrossSpaceError):
            tm.empty(4, space="cuda:1", mr=mr.GpuMemoryResource("rocm:1"))
        assert tm.preferred_compute_devices("rocm:1") == [ComputeDevice("rocm", 1)]


def test_compute_devices_are_registered_in_every_spelling_that_says_whose_they_are() -> None:
    for said in ("cuda:5", ComputeDevice("cuda", 5), torch.device("cuda:5"), JaxLike("cuda", 5)):
        tm.spaces.register_compute_device(said, reaches=["cpu", tm.gpu(5), torch.device("cuda", 6)])
        assert tm.preferred_compute_devices("gpu:6") == [ComputeDevice("cuda", 5)]
        tm.spaces.unregister_compute_device(said)
    for vague in ("gpu:5", tm.gpu(5), "pinned"):
        with pytest.raises(errors.InvalidSpace):
            tm.spaces.register_compute_device(vague)
