"""Descriptors from outside: everything that is not what it should be is refused, and nobody can crash us by it."""

import fcntl
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import tensormem as tm
from support.python_processes import check_python
from tensormem import errors

SIZES = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


@contextmanager
def opened(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def memory_file(nbytes: int, *, sealed: bool = True) -> int:
    fd = os.memfd_create("theirs", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, nbytes)
    if sealed:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SIZES)
    return fd


def a_pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def a_socket() -> int:
    return socket.socket(socket.AF_UNIX).detach()


def a_file_on_a_disk() -> int:
    with tempfile.TemporaryFile(dir=os.path.dirname(__file__)) as file:
        file.write(bytes(100))
        file.flush()
        return os.dup(file.fileno())


WRONG: dict[str, Callable[[], int]] = {
    "a directory": lambda: os.open("/dev/shm", os.O_RDONLY),
    "a pipe": a_pipe,
    "a socket": a_socket,
    "a device": lambda: os.open("/dev/null", os.O_RDWR),
    "a file on a disk": a_file_on_a_disk,
    "no memory": lambda: os.eventfd(0),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_memory_is_refused_by_name(what: str) -> None:
    with opened(WRONG[what]()) as fd:
        before = descriptors()
        with pytest.raises(errors.InvalidArgument, match=what):
            tm.from_fd(fd, "uint8", 10)
        assert descriptors() == before


@pytest.mark.parametrize("fd", [-1, 2**31, 2**70, 999_999])
def test_what_is_not_open_is_refused(fd: int) -> None:
    with pytest.raises(errors.InvalidArgument, match="no open descriptor"):
        tm.from_fd(fd)


@pytest.mark.parametrize("fd", ["3", None, 3.0, True])
def test_what_is_no_descriptor_is_refused(fd: int) -> None:
    with pytest.raises(errors.InvalidArgument):
        tm.from_fd(fd)


def test_a_descriptor_that_was_just_closed_is_refused() -> None:
    fd = memory_file(64)
    os.close(fd)
    with pytest.raises(errors.InvalidArgument):
        tm.from_fd(fd)


def test_memory_of_another_maker_is_taken_if_it_cannot_shrink() -> None:
    with opened(memory_file(100)) as fd:
        tensor = tm.from_fd(fd, "uint8", (10, 10))
        tensor.fill_(3)
        assert os.pread(fd, 100, 0) == b"\3" * 100 and tensor.memory == "shm"
        assert tm.from_fd(fd).shape == (100,)
        with pytest.raises(errors.InvalidSize):
            tm.from_fd(fd, "float64")
        with pytest.raises(errors.InvalidArgument):
            tm.from_fd(fd, "int4")


@pytest.mark.parametrize("shape", [101, (10, 11), (2**40, 2**20)])
def test_memory_that_is_too_small_is_refused_and_nothing_is_kept(shape: int | tuple[int, ...]) -> None:
    with opened(memory_file(100)) as fd:
        before = descriptors()
        with pytest.raises((errors.InvalidOffset, errors.InvalidSize)):
            tm.from_fd(fd, "uint8", shape)
        assert descriptors() == before
        from tensormem.memories.descriptors import storage_from_fd

        with pytest.raises(errors.InvalidOffset):
            storage_from_fd(fd, 101)


def test_empty_memory_is_refused() -> None:
    with opened(memory_file(0)) as fd, pytest.raises(errors.InvalidSize):
        tm.from_fd(fd)


def test_what_is_not_sealed_against_shrinking_is_refused_unless_it_is_trusted_and_then_sealed() -> None:
    with opened(memory_file(4096, sealed=False)) as fd:
        with pytest.raises(errors.InvalidArgument, match="F_SEAL_SHRINK"):
            tm.from_fd(fd)
        tensor = tm.from_fd(fd, trust=True)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
        assert tensor.tolist() == [0] * 4096


def test_a_hostile_peer_that_shrinks_its_memory_cannot_crash_us() -> None:
    # Before we look: it is too small. Afterwards: the seals hold. In between there is no time.
    with opened(memory_file(4096, sealed=False)) as fd:
        os.ftruncate(fd, 10)
        with pytest.raises(errors.InvalidOffset):
            tm.from_fd(fd, "uint8", 4096, trust=True)
    check_python(
        """
        import fcntl, os, threading
        import tensormem as tm
        from tensormem import errors
        for turn in range(300):
            fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, 1 << 16)
            def shrink():
                try:
                    os.ftruncate(fd, 0)
                except PermissionError:
                    pass
            hostile = threading.Thread(target=shrink)
            hostile.start()
            try:
                tensor = tm.from_fd(fd, "uint8", 1 << 16, trust=True)
            except (errors.InvalidOffset, errors.InvalidSize):
                pass
            else:
                hostile.join()
                assert tensor[-1].item() == 0
            hostile.join()
            os.close(fd)
        """
    )


def test_what_cannot_be_sealed_even_by_us_is_taken_only_on_trust() -> None:
    fd = os.memfd_create("never sealed", os.MFD_CLOEXEC)
    os.ftruncate(fd, 64)
    with opened(fd):
        with pytest.raises(errors.InvalidArgument):
            tm.from_fd(fd)
        assert not tm.from_fd(fd, trust=True).storage.owner.sealed


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_PATH])
def test_a_descriptor_that_cannot_read_is_refused(flags: int) -> None:
    with (
        opened(memory_file(64)) as fd,
        opened(os.open(f"/proc/self/fd/{fd}", flags)) as blind,
        pytest.raises(errors.InvalidArgument, match="may not read"),
    ):
        tm.from_fd(blind, readonly=True)


def test_a_read_only_descriptor_is_taken_to_read_alone() -> None:
    with opened(memory_file(64)) as fd, opened(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)) as reading:
        with pytest.raises(errors.InvalidArgument, match="readonly=True"):
            tm.from_fd(reading)
        assert tm.from_fd(reading, readonly=True).readonly


def test_memory_without_a_descriptor_has_none_to_give() -> None:
    with pytest.raises(errors.NotSupported, match="shm"):
        tm.zeros(4).clone_fd()
    shared = tm.zeros(4, memory="shm")
    shared.close()
    with pytest.raises(errors.UseAfterFree):
        shared.clone_fd()
    dropped = tm.zeros(4, memory="shm").storage.owner
    for use in (dropped.export_fd, dropped.export_readonly_fd, lambda: dropped.begin_access("r")):
        with pytest.raises(errors.UseAfterFree):
            use()
    assert dropped.identity is None


def test_when_descriptors_run_out_it_is_said_and_nothing_is_lost() -> None:
    check_python(
        """
        import os, resource
        import tensormem as tm
        from tensormem import errors
        shared = tm.full(64, 5, "uint8", memory="shm")
        fd = shared.clone_fd()
        before = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + 3, before + 3))
        filler = []
        try:
            while True:
                filler.append(os.dup(fd))
        except OSError:
            pass
        for refused in (
            lambda: tm.zeros(4, memory="shm"),
            lambda: tm.from_fd(fd),
            lambda: tm.from_fd(fd, readonly=True),
            shared.clone_fd,
            lambda: shared.clone_fd(readonly=True),
        ):
            try:
                refused()
            except errors.DriverError as error:
                assert error.name == "EMFILE", error
            else:
                raise AssertionError(refused)
        for each in filler:
            os.close(each)
        assert tm.from_fd(fd).tolist() == [5] * 64 and tm.zeros(4, memory="shm").tolist() == [0] * 4
        os.close(fd)
        del shared
        """
    )


def test_ten_thousand_shares_and_attachments_leave_nothing() -> None:
    tensor = tm.full(1 << 16, 1, "uint8", memory="shm")
    tensor.map("r").unmap()
    maps, before = mappings(), descriptors()
    for turn in range(10_000):
        fd = tensor.clone_fd(readonly=turn % 2 == 0)
        with opened(fd), tm.from_fd(fd, readonly=turn % 2 == 0) as other:
            assert other.aliases(tensor)
    assert (mappings(), descriptors()) == (maps, before)
    tensor.close()
    assert mappings() < maps and descriptors() == before - 1


def mappings() -> int:
    with open("/proc/self/maps") as file:
        return sum("memfd:tensormem" in line for line in file)


def test_the_limit_of_descriptors_is_not_ours_to_change() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    tm.zeros(4, memory="shm").close()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
