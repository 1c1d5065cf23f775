"""Memory of a GPU by descriptor: it tells no size, older releases of HIP take its address, and it is ours until the
memory is gone."""

import os

import pytest

from tensormem import errors
from tensormem.testing import simulated_gpu
from tensormem.vmm import VirtualMemoryManager

PROFILES = {
    "h100": "cuda",
    "mi300": "rocm",
    "mi300-rocm6.2": "rocm",
    "mi300-rocm10": "rocm",
}


@pytest.mark.parametrize("profile", PROFILES)
def test_memory_comes_back_by_a_descriptor_without_a_size(profile: str) -> None:
    vendor = PROFILES[profile]
    habits = {"sizeless_descriptors": True}
    with simulated_gpu(memory="64MiB", vendor=vendor, profile=profile, habits=habits) as gpu:
        with VirtualMemoryManager(f"{vendor}:0") as vmm:
            page = vmm.granularity()[1]
            with vmm.reserve(2 * page) as va:
                physical = vmm.alloc_physical(page, exportable=True)
                fd = vmm.export_handle(physical)
                assert os.fstat(fd).st_size == 0
                with pytest.raises(errors.InvalidSize, match="say it"):
                    vmm.import_handle(fd)
                imported = vmm.import_handle(fd, page)
                os.close(fd)  # the caller's: what the driver still needs is not this one
                assert imported.size == page and imported.imported
                mappings = vmm.map(va, [physical, imported], access="read_write")
                gpu.drivers[0].fill(mappings[0].address, 7, 1, (page, 1, 1))
                assert len(mappings) == 2
        assert gpu.memory() == {}


def test_a_descriptor_is_held_as_long_as_the_imported_memory() -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        driver = gpu.drivers[0]
        physical = driver.physical_create(driver.granularity()[0], exportable=True)
        fd = driver.physical_export(physical)
        before = len(os.listdir("/proc/self/fd"))
        imported = driver.physical_import(fd)
        assert len(os.listdir("/proc/self/fd")) > before
        driver.physical_destroy(imported)
        assert len(os.listdir("/proc/self/fd")) == before
        os.close(fd)
        driver.physical_destroy(physical)
