"""CPU access to DMA-BUFs: every start has its end, in the direction that was said, also by the kernel's own account."""

import ctypes
import gc
import os
import resource
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensormem as tm
from tensormem import errors
from tensormem.memories import Storage, dma
from vm.guest.kernel_view import live_buffers, open_descriptors, protections, traced_syncs

MODES = ["r", "w", "rw"]


class Interrupted(Exception):
    pass


@pytest.fixture(params=["system", "udmabuf"])
def storage(request: pytest.FixtureRequest) -> Storage:
    return dma.allocate(5000, heap=request.param)


@pytest.mark.parametrize("mode", MODES)
def test_a_map_is_one_start_and_one_end_in_its_direction(storage: Storage, mode: str) -> None:
    syncs = storage.owner.syncs
    with traced_syncs() as seen:
        with storage.map(mode) as mapped:
            assert (dict(syncs.started), syncs.open) == ({mode: 1}, 1)
            assert mapped.nbytes == 5000
        mapped.unmap()
    assert dict(syncs.ended) == {mode: 1} and len(seen) == 2
    assert storage.unplanned_accesses == 0


@pytest.mark.parametrize("mode", MODES)
def test_an_access_whose_body_raises_ends_all_the_same(storage: Storage, mode: str) -> None:
    with traced_syncs() as seen, pytest.raises(Interrupted), storage.map(mode):
        raise Interrupted
    assert (len(seen), storage.owner.syncs.open) == (2, 0)


def test_copies_and_fills_on_a_stream_are_queued_with_their_brackets(storage: Storage) -> None:
    gate, syncs = threading.Event(), storage.owner.syncs
    frame, copied = tm.Tensor(storage, "uint8", 5000), tm.zeros(5000, "uint8")
    with tm.Stream("main") as stream:
        stream.launch(gate.wait)
        frame.fill_(7, stream=stream)  # would wait for ever: nobody else opens the gate
        copied.copy_(frame, stream=stream)
        assert syncs.started.total() == 0 and not frame.ready
        frame.close()
        gate.set()
        stream.synchronize()
    assert (dict(syncs.started), syncs.open) == ({"w": 1, "r": 1}, 0)
    assert copied.tolist() == [7] * 5000


def test_a_map_that_is_forgotten_ends_with_its_last_array(storage: Storage) -> None:
    array = tm.Tensor(storage, "uint8", 5000).map("rw").numpy()
    assert storage.owner.syncs.open == 1
    array[:] = 7
    del array
    gc.collect()
    assert storage.owner.syncs.open == 0
    assert set(tm.Tensor(storage, "uint8", 5000).tolist()) == {7}


def test_a_ring_of_objects_with_a_map_in_it_is_collected_whole(storage: Storage) -> None:
    gc.collect()
    live = live_buffers()
    ring: list[Any] = [dma.allocate(64, heap=storage.owner.exporter)]
    ring += [ring[0].map("w"), ring, ring[0].owner]
    syncs = ring[0].owner.syncs
    del ring
    gc.collect()
    assert (live_buffers(), syncs.open, syncs.ended["w"]) == (live, 0, 1)


def test_what_is_taken_without_a_map_is_bracketed_and_counted(storage: Storage) -> None:
    tensor = tm.Tensor(storage, "uint8", 5000)
    with traced_syncs() as seen:
        view = memoryview(tensor)
        array = np.asarray(tensor)
        assert dict(storage.owner.syncs.started) == {"rw": 1}
        array[0] = 3
        assert view[0] == 3
        view.release()
        del array
    assert (len(seen), storage.unplanned_accesses) == (2, 1)


def test_maps_to_read_are_protected_by_the_kernel(storage: Storage) -> None:
    with storage.map("r") as mapped:
        assert protections(mapped.ptr) == "r--s" and not mapped.numpy().flags.writeable
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons do not like forks
            child = os.fork()
        if child == 0:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            ctypes.memset(mapped.ptr, 1, 1)
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGSEGV
    with storage.map("w") as mapped:
        assert protections(mapped.ptr) == "rw-s"


def test_both_mappings_show_the_same_memory_and_are_made_once(storage: Storage) -> None:
    addresses: set[tuple[str, int]] = set()
    for value in range(3):
        with storage.map("w") as mapped:
            memoryview(mapped)[4999] = value
            addresses.add(("w", mapped.ptr))
        with storage.map("r") as mapped:
            assert memoryview(mapped)[4999] == value
            addresses.add(("r", mapped.ptr))
    assert len(addresses) == 2
    storage.close()
    assert {protections(address) for _, address in addresses} == {"not mapped"}


def test_a_mapping_that_cannot_be_made_starts_nothing() -> None:
    storage = dma.allocate("32MiB")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    fds, live = open_descriptors(), live_buffers()
    resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), hard))
    try:
        with pytest.raises(errors.DriverError) as caught:
            storage.map("r")
        with pytest.raises(errors.DriverError):
            dma.allocate("32MiB")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert (open_descriptors(), live_buffers()) == (fds, live)
    assert caught.value.name == "ENOMEM" and storage.owner.syncs.started.total() == 0
    with storage.map("r") as mapped:
        assert mapped.nbytes == 32 << 20


def test_wrong_modes_and_closed_storages_are_refused(storage: Storage) -> None:
    owner = storage.owner
    for wrong in ("x", "", "wr", None):
        with pytest.raises(errors.InvalidArgument):
            storage.map(wrong)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument):
        owner.begin_access("x")
    with storage.map("r") as mapped:
        with pytest.raises(BufferError):
            storage.close()
        assert memoryview(mapped)[0] == 0
    storage.close()
    owner.release()
    for call in (owner.export_fd, owner.export_sync_file, lambda: owner.begin_access("r"), lambda: owner.name):
        with pytest.raises(errors.UseAfterFree):
            call()
    assert owner.syncs.open == 0


def test_threads_map_at_once_and_every_start_has_its_end(storage: Storage) -> None:
    def work(mode: str) -> None:
        for _ in range(40):
            with storage.map(mode) as mapped:
                assert mapped.mapped

    threads = [threading.Thread(target=work, args=(mode,)) for mode in ("r", "w", "rw", "r")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storage.owner.syncs.started == {"r": 80, "w": 40, "rw": 40} and storage.owner.syncs.open == 0


def test_arrays_and_copies_between_kinds_see_the_same_numbers() -> None:
    numbers = np.arange(600, dtype=np.float32).reshape(20, 30)
    for heap in ("system", "udmabuf"):
        tensor = tm.Tensor(dma.allocate(2400, heap=heap), "float32", (20, 30))
        tensor.copy_(tm.from_numpy(numbers))
        assert np.array_equal(tensor.numpy(), numbers)
        assert np.array_equal(tensor.clone().numpy(), numbers)
        assert np.array_equal(np.from_dlpack(tensor), numbers)
        assert tensor.storage.owner.syncs.started.total() > 0
