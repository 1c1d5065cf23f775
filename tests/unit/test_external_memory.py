"""Memory of others in a GPU's space: a descriptor comes in, both sides see the same bytes, and it is given back once.

The simulated GPU takes a memfd for a DMA-BUF. It keeps the descriptor that it is given and closes it, as drivers do.
"""

import gc
import os
from collections.abc import Iterator

import pytest

import tensormem as tm
from tensormem import _core, drivers, errors
from tensormem.testing import SimulatedGpu, simulated_gpu

PAGE = 4096
IMPORTS = {"cuda": "cuImportExternalMemory", "rocm": "hipImportExternalMemory"}


@pytest.fixture
def fd() -> Iterator[int]:
    made = os.memfd_create("frame")
    os.pwrite(made, bytes(range(256)) * 32, 0)
    yield made
    os.close(made)


@pytest.fixture(params=["cuda", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    with simulated_gpu(memory="64MiB", vendor=request.param) as gpu:
        yield gpu


def externals(gpu: SimulatedGpu) -> tuple[int, int]:
    report = gpu.report()
    return report["external_memories"], report["external_buffers"]


def test_bytes_written_through_the_descriptor_are_read_by_the_gpu_and_back(gpu: SimulatedGpu, fd: int) -> None:
    frame = tm.from_external_fd(fd, "uint8", (2, PAGE))
    assert frame.space is tm.gpu(0) and frame.storage.nbytes == 2 * PAGE and not frame.storage.host_accessible
    assert frame.__dlpack_device__() == ((2, 0) if gpu.vendor == "cuda" else (10, 0))
    assert bytes(frame.to("main")) == bytes(range(256)) * 32
    os.pwrite(fd, b"\xff" * 100, PAGE)
    assert frame[1].to("main").tolist()[:101] == [255] * 100 + [100]
    frame[0].copy_(tm.full(PAGE, 7, "uint8", space="gpu:0")).end.synchronize()
    assert os.pread(fd, PAGE, 0) == b"\x07" * PAGE


def test_memory_is_given_back_once_and_the_descriptor_stays_the_callers(gpu: SimulatedGpu, fd: int) -> None:
    with tm.from_external_fd(fd, space="gpu:1") as frame:
        assert externals(gpu) == (1, 1) and gpu.platform.held["externals"] == 1
        assert frame.space is tm.gpu(1)
    frame.close()
    assert externals(gpu) == (0, 0) and gpu.platform.held["externals"] == 0
    dropped = tm.from_external_fd(fd, "uint16", nbytes=10, offset=2)
    assert dropped.shape == (4,) and dropped.storage.nbytes == 10
    del dropped
    gc.collect()
    assert externals(gpu) == (0, 0) and os.pread(fd, 2, 0) == b"\x00\x01"
    with pytest.raises(errors.InvalidArgument, match="no external memory"):
        gpu.drivers[0].release_external(4096)


def test_two_imports_of_one_descriptor_are_the_same_bytes(gpu: SimulatedGpu, fd: int) -> None:
    first, second = (tm.from_external_fd(fd, space=space) for space in ("gpu:0", "gpu:1"))
    tm.full(10, 9, "uint8").to("gpu:0")
    first[:10].copy_(tm.full(10, 9, "uint8", space="gpu:0")).end.synchronize()
    assert second[:11].to("main").tolist() == [9] * 10 + [10]
    first.close()
    assert second[:1].to("main").tolist() == [9]


def test_the_gpus_view_and_the_cpus_view_have_one_identity_as_long_as_one_of_them_lives(gpu: SimulatedGpu) -> None:
    before = _core.live_identities()
    cpu = tm.zeros(PAGE, "uint8", memory="shm")
    fd = cpu.clone_fd()
    first, second = (tm.from_external_fd(fd, space=space) for space in ("gpu:0", "gpu:1"))
    os.close(fd)
    assert first.aliases(cpu) and second.aliases(first) and first.storage.id == cpu.storage.id
    known = cpu.storage.id
    cpu.close()
    first.close()
    assert second.storage.id == known and _core.live_identities() == before + 1
    second.close()
    assert _core.live_identities() == before


def test_what_cannot_be_imported_is_refused_and_changes_nothing(gpu: SimulatedGpu, fd: int) -> None:
    driver = gpu.drivers[0]
    with pytest.raises(errors.InvalidArgument, match="descriptor"):
        tm.from_external_fd(1 << 20)
    with pytest.raises(errors.InvalidArgument, match="descriptor"):
        driver.import_external(1 << 20, 10)
    for size in (0, 2 * PAGE + 1, 2**62):
        with pytest.raises(errors.InvalidSize):
            driver.import_external(fd, size)
    with pytest.raises(errors.InvalidArgument, match="by descriptor on a GPU"):
        tm.from_external_fd(fd, space="main")
    with pytest.raises(errors.InvalidArgument):
        driver.import_external(fd, 10, device=7)
    empty = os.memfd_create("empty")
    with pytest.raises(errors.InvalidSize, match="give nbytes"):
        tm.from_external_fd(empty)
    os.close(empty)
    read, write = os.pipe()
    with pytest.raises(errors.DriverError, match=IMPORTS[gpu.vendor]):
        driver.import_external(read, 10)
    os.close(read)
    os.close(write)
    assert externals(gpu) == (0, 0)


def test_a_driver_without_the_functions_says_so(fd: int) -> None:
    for vendor, function in IMPORTS.items():
        with simulated_gpu(1, "64MiB", vendor=vendor, without=[function]) as gpu:
            with pytest.raises(errors.NotSupported, match=function):
                gpu.drivers[0].import_external(fd, 10)
            assert externals(gpu) == (0, 0)
    with pytest.raises(errors.NotSupported):
        drivers.host().import_external(fd, 10)
    with pytest.raises(errors.NotSupported):
        drivers.host().release_external(10)


def test_drivers_that_know_no_dma_bufs_get_an_opaque_descriptor(fd: int) -> None:
    for version, types in ((13000, ["0x9"]), (12080, ["0x9", "0x1"])):
        with simulated_gpu(1, "64MiB", version=version) as gpu:
            tm.from_external_fd(fd).close()
            calls = [line for line in gpu.log() if "cuImportExternalMemory" in line]
            assert [line.partition("(")[2].partition(")")[0] for line in calls] == types
            assert calls[-1].endswith("-> 0")


def test_memory_that_outlives_its_driver_is_let_go_in_silence(fd: int) -> None:
    with simulated_gpu(1, "64MiB") as gpu:
        frame = tm.from_external_fd(fd)
    assert gpu.leaks == {"external_memories": 1, "external_buffers": 1}
    frame.close()


def test_memory_dropped_by_a_host_function_is_given_back_later(gpu: SimulatedGpu, fd: int) -> None:
    held = [tm.from_external_fd(fd)]
    with tm.Stream(gpu.drivers[0]) as stream:
        stream.launch(held.clear)
        stream.synchronize()
        assert not held and externals(gpu) == (1, 1)
    tm.Event(gpu.drivers[0]).close()
    assert externals(gpu) == (0, 0)
