"""Every system call behind shared memory fails in turn: it is said, nothing changes, and nothing leaks."""

import errno
import os
from collections.abc import Callable

import pytest

import tensormem as tm
from support.holdings import nothing_left_behind
from tensormem import _core, errors
from tensormem.memories import allocate
from tensormem.testing.faults import count_system_calls, each_system_call_fails


def create_and_close() -> None:
    tm.mr.SharedMemoryResource().trim()
    allocate(100_000, "shm").close()


def create_of_the_spare_and_close() -> None:
    for _ in range(3):
        allocate(100_000, "shm").close()


def create_for_readers() -> None:
    allocate(100_000, "shm", peers="r").close()


def create_huge() -> None:
    allocate(3 << 20, "shm", huge_pages=True).close()


def map_to_read() -> None:
    with allocate(100_000, "shm") as storage, storage.map("r"):
        pass


def share_and_attach() -> None:
    with tm.zeros(1000, memory="shm") as tensor:
        for readonly in (False, True):
            fd = tensor.clone_fd(readonly=readonly)
            try:
                tm.from_fd(fd, "float32", 1000, readonly=readonly).close()
            finally:
                os.close(fd)


SCENARIOS = [
    create_and_close,
    create_of_the_spare_and_close,
    create_for_readers,
    create_huge,
    map_to_read,
    share_and_attach,
]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("error", [errno.ENOMEM, errno.EMFILE, errno.EPERM, errno.EINVAL])
def test_whichever_system_call_fails_it_is_said_and_nothing_leaks(scenario: Callable[[], None], error: int) -> None:
    scenario()
    assert count_system_calls(scenario) >= 4
    identities = _core.live_identities()
    with nothing_left_behind():
        for raised in each_system_call_fails(scenario, error=error):
            # Some failures have another way out: no memfd, no huge pages by collapse, a munmap that is done again.
            assert raised is None or isinstance(raised, errors.TensormemError)
    assert _core.live_identities() == identities


def test_a_creation_that_failed_is_refused_and_not_another_kind() -> None:
    tm.mr.SharedMemoryResource().trim()
    refused = list(each_system_call_fails(lambda: tm.zeros(4, memory="shm"), "ftruncate"))
    assert [type(raised) for raised in refused] == [errors.DriverError]
    tm.mr.SharedMemoryResource().trim()
    refused = list(each_system_call_fails(lambda: tm.zeros(4, use="share"), "mmap"))
    assert refused and all(isinstance(raised, errors.OutOfVirtualMemory) for raised in refused)
