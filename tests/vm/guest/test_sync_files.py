"""Fences of DMA-BUFs as sync files, with a device driver that really has work under way: vgem."""

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import pytest

from tensormem import errors
from tensormem.memories import Storage, dma
from vm.guest.kernel_view import open_descriptors
from vm.guest.vgem import Vgem

IOCTL = 16  # the number of the system call


@pytest.fixture
def device() -> Iterator[Vgem]:
    made = Vgem(8192)
    yield made
    made.close()


def is_done(sync_file: int) -> bool:
    poll = select.poll()
    poll.register(sync_file, select.POLLIN)
    return bool(poll.poll(0))


def test_a_buffer_nobody_works_on_has_a_sync_file_that_is_done() -> None:
    storage = dma.allocate(64)
    before = open_descriptors()
    for mode in ("r", "w", "rw"):
        fence = storage.owner.export_sync_file(mode)
        assert is_done(fence) and not os.get_inheritable(fence)
        os.close(fence)
    assert open_descriptors() == before


def test_a_sync_file_is_done_when_the_device_is(device: Vgem) -> None:
    storage = dma.from_fd(device.fd)
    assert storage.owner.exporter == "drm"
    fence = device.attach_write()
    waiting = storage.owner.export_sync_file("r")
    assert not is_done(waiting)
    device.signal(fence)
    assert is_done(waiting)
    os.close(waiting)


def test_what_is_imported_is_what_others_wait_for(device: Vgem) -> None:
    storage, other = dma.from_fd(device.fd), dma.allocate(64)
    fence = device.attach_write()
    pending = storage.owner.export_sync_file("rw")
    other.owner.import_sync_file(pending, "w")
    os.close(pending)
    waiting = other.owner.export_sync_file("r")
    assert not is_done(waiting)
    device.signal(fence)
    assert is_done(waiting)
    os.close(waiting)


def test_what_is_no_sync_file_is_refused() -> None:
    storage = dma.allocate(64)
    mine = storage.owner.export_fd()
    for wrong in (mine, -1, 9999):
        with pytest.raises(errors.InvalidArgument):
            storage.owner.import_sync_file(wrong)
    os.close(mine)
    with pytest.raises(errors.InvalidArgument):
        storage.owner.export_sync_file("x")


def wait_until_in_ioctl(thread: threading.Thread) -> None:
    """A few looks at what the kernel says of the thread, until it sleeps in the call."""
    state = Path(f"/proc/self/task/{thread.native_id}/syscall")
    while thread.is_alive() and not state.read_text().startswith(f"{IOCTL} "):
        os.sched_yield()


def test_an_access_waits_for_the_device_through_signals_and_begins_when_it_is_done(device: Vgem) -> None:
    storage = dma.from_fd(device.fd)
    caught: list[int] = []
    begun: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    def access(shared: Storage) -> None:
        with shared.map("r") as mapped:
            begun.append(mapped.nbytes)

    with ExitStack() as after:
        after.callback(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, note))
        fence = device.attach_write()
        thread = threading.Thread(target=access, args=(storage,))
        thread.start()
        for _ in range(3):
            wait_until_in_ioctl(thread)
            assert thread.ident is not None
            signal.pthread_kill(thread.ident, signal.SIGUSR1)
        wait_until_in_ioctl(thread)
        assert (begun, thread.is_alive()) == ([], True)
        device.signal(fence)
        thread.join()
    assert begun == [storage.nbytes] and caught
    assert (dict(storage.owner.syncs.started), storage.owner.syncs.open) == ({"r": 1}, 0)
