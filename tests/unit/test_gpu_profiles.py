"""Kinds of devices: what each says of itself, and that tensormem works on it or says by name what is not there."""

import ctypes

import pytest

import tensormem as tm
from support.bare_gpu import BareGpu
from tensormem import errors
from tensormem.testing import simulated_gpu
from tensormem.testing.gpus import SimulatedGpu

MIB = 1 << 20
CUDA = ["h100", "orin", "wsl", "vgpu", "novmm"]
ROCM = ["mi300", "mi300-rocm6.2", "mi300-rocm7.1", "mi300-rocm10"]
PROFILES = [("cuda", name) for name in CUDA] + [("rocm", name) for name in ROCM]
# integrated, managed, managed at the same time, virtual memory, exported by descriptor, pools
FACTS = {
    "h100": (0, 1, 1, 1, 1, 1),
    "orin": (1, 1, 0, 1, 1, 1),
    "wsl": (0, 1, 0, 1, 0, 1),
    "vgpu": (0, 0, 0, 1, 1, 0),
    "novmm": (0, 1, 0, 0, 0, 0),
}
ATTRIBUTES = (18, 83, 89, 102, 103, 115)


def attribute(gpu: SimulatedGpu, number: int) -> int:
    value = ctypes.c_int(-1)
    BareGpu(gpu).ask("DeviceGetAttribute", ctypes.byref(value), ctypes.c_int(number), ctypes.c_int(0))
    return value.value


@pytest.mark.parametrize("profile", CUDA)
def test_a_profile_answers_with_its_own_facts(profile: str) -> None:
    with simulated_gpu(2, "64MiB", profile=profile) as gpu:
        assert tuple(attribute(gpu, number) for number in ATTRIBUTES) == FACTS[profile]


def test_without_a_profile_the_devices_are_an_h100_and_an_mi300() -> None:
    for vendor, major, version in (("cuda", 9, 13000), ("rocm", 9, 70151831)):
        with simulated_gpu(1, "64MiB", vendor=vendor) as gpu:
            told = ctypes.c_int()
            BareGpu(gpu).ask("DriverGetVersion", ctypes.byref(told))
            assert told.value == version
            if vendor == "cuda":
                assert attribute(gpu, 75) == major


def test_a_profile_is_a_start_and_options_change_it() -> None:
    with simulated_gpu(1, "64MiB", pools=0, profile="h100") as gpu:
        assert attribute(gpu, 115) == 0
    with simulated_gpu(1, "64MiB", profile="vgpu", pools=1) as gpu:
        assert attribute(gpu, 115) == 1


@pytest.mark.parametrize(("vendor", "profile"), PROFILES)
def test_plain_and_pinned_memory_and_copies_work_on_every_profile(vendor: str, profile: str) -> None:
    with simulated_gpu(1, "64MiB", vendor=vendor, profile=profile):
        values = tm.from_buffer(bytearray(range(256)), "uint8")
        there = values.to("gpu:0")
        assert bytes(there.to("main").numpy()) == bytes(range(256))
        pinned = tm.mr.PinnedMemoryResource(vendor)
        pinned.deallocate(pinned.allocate(4096))


@pytest.mark.parametrize(("vendor", "profile"), PROFILES)
@pytest.mark.parametrize("kind", ["pools", "virtual", "managed"])
def test_what_a_profile_lacks_is_refused_by_name(vendor: str, profile: str, kind: str) -> None:
    lacks = {("vgpu", "pools"), ("novmm", "pools"), ("novmm", "virtual"), ("vgpu", "managed")}
    with simulated_gpu(1, "64MiB", vendor=vendor, profile=profile) as gpu:

        def use() -> None:
            driver = gpu.drivers[0]
            if kind == "pools":
                pool = tm.mr.GpuAsyncMemoryResource(driver)
                pool.deallocate(pool.allocate(4096))
            elif kind == "virtual":
                driver.physical_destroy(driver.physical_create(2 * MIB))
            else:
                managed = tm.mr.ManagedMemoryResource(driver)
                managed.deallocate(managed.allocate(4096))

        if (profile, kind) in lacks:
            with pytest.raises(errors.TensormemError) as caught:
                use()
            assert "NOT_SUPPORTED" in str(caught.value) or isinstance(caught.value, errors.NotSupported)
        else:
            use()
    assert gpu.leaks == {}
