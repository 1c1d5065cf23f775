"""Physical memory between processes: by descriptor over a Unix socket, and through multiprocessing; hostile peers."""

import array
import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext

import pytest

from support.holdings import nothing_left_behind
from support.neighbours import TIME_LIMIT, answer, bytes_of, echo, first_bytes, received
from support.python_processes import check_python
from tensormem import errors
from tensormem.vmm import VirtualMemoryManager, receive_physical, send_physical

PAGE = 4096
HUGE = 2 << 20
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


@pytest.fixture
def vmm() -> Iterator[VirtualMemoryManager]:
    with VirtualMemoryManager() as manager:
        yield manager


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def memory_file(size: int, seals: int = SEALS) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


# --- Over a socket ---


def test_memory_sent_over_a_socket_is_the_same_memory(
    vmm: VirtualMemoryManager, ends: tuple[socket.socket, socket.socket]
) -> None:
    with nothing_left_behind(), vmm.alloc_physical(HUGE, exportable=True) as physical:
        send_physical(ends[0], physical)
        with receive_physical(ends[1], vmm) as arrived:
            assert (arrived.size, arrived.imported) == (HUGE, True)
            bytes_of(arrived, 1, put=b"written there")
        assert bytes_of(physical, 13) == b"written there"


def test_a_process_that_inherited_nothing_gets_it_over_a_socket_and_may_die(vmm: VirtualMemoryManager) -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server, nothing_left_behind():
        server.bind(f"{folder}/meet")
        server.listen()
        here = socket.socket(socket.AF_UNIX)
        here.connect(f"{folder}/meet")
        there, _ = server.accept()
        with here, there, vmm.alloc_physical(PAGE, exportable=True) as physical:
            bytes_of(physical, 1, put=b"ask")
            os.set_inheritable(there.fileno(), True)
            source = f"""
            import ctypes, os, socket
            from tensormem.vmm import VirtualMemoryManager, receive_physical
            vmm = VirtualMemoryManager()
            there = socket.socket(fileno={there.fileno()})
            va = vmm.reserve({PAGE})
            mapping = vmm.map(va, receive_physical(there, vmm), access="read_write")
            assert ctypes.string_at(mapping.address, 3) == b"ask"
            ctypes.memmove(mapping.address, b"answer", 6)
            os.kill(os.getpid(), 9)
            """
            send_physical(here, physical)
            ended = run_with_descriptor(source, there.fileno())
            assert ended == -9
            assert bytes_of(physical, 6) == b"answer"


def run_with_descriptor(source: str, fd: int) -> int:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], pass_fds=(fd,), timeout=TIME_LIMIT
    ).returncode


def hostile_descriptors() -> dict[str, Callable[[], int]]:
    pipe_ends: list[int] = []

    def pipe() -> int:
        reader, writer = os.pipe()
        os.close(writer)
        pipe_ends.append(reader)
        return reader

    def unlinked_file() -> int:
        with tempfile.TemporaryFile() as file:
            file.truncate(PAGE)
            return os.dup(file.fileno())

    return {
        "a memory file that can shrink": lambda: memory_file(PAGE, seals=0),
        "a memory file sealed against growing alone": lambda: memory_file(PAGE, seals=fcntl.F_SEAL_GROW),
        "an empty memory file": lambda: memory_file(0),
        "a memory file that ends inside a page": lambda: memory_file(PAGE + 1),
        "another size than was said": lambda: memory_file(2 * PAGE),
        "smaller than was said": lambda: memory_file(PAGE // 2),
        "more than there is": lambda: memory_file(1 << 60),
        "a pipe": pipe,
        "a folder": lambda: os.open("/tmp", os.O_RDONLY),
        "a file on disk": unlinked_file,
        "a device": lambda: os.open(os.devnull, os.O_RDWR),
        "a socket": lambda: socket.socket(socket.AF_UNIX).detach(),
    }


@pytest.mark.parametrize("what", hostile_descriptors())
def test_a_hostile_descriptor_is_refused_and_closed(
    what: str, vmm: VirtualMemoryManager, ends: tuple[socket.socket, socket.socket]
) -> None:
    with nothing_left_behind():
        fd = hostile_descriptors()[what]()
        before = vmm.memory_info()
        with pytest.raises((errors.InvalidArgument, errors.OutOfPhysicalMemory)):
            vmm.import_handle(fd, PAGE)
        socket.send_fds(ends[0], [struct.pack("<8sQ", b"tmphys01", PAGE)], [fd])
        with pytest.raises((errors.InvalidArgument, errors.OutOfPhysicalMemory)):
            receive_physical(ends[1], vmm)
        assert {**vmm.memory_info(), "free_bytes": 0} == {**before, "free_bytes": 0}
        os.close(fd)


def test_a_memory_file_of_somebody_else_that_cannot_shrink_is_welcome(vmm: VirtualMemoryManager) -> None:
    with nothing_left_behind():
        fd = memory_file(PAGE)
        os.pwrite(fd, b"from elsewhere", 0)
        with vmm.import_handle(fd, PAGE) as physical:
            assert bytes_of(physical, 14) == b"from elsewhere"
            with pytest.raises(PermissionError):
                os.ftruncate(fd, 0)
        os.close(fd)


def test_a_descriptor_without_writing_can_be_read_and_not_written(vmm: VirtualMemoryManager) -> None:
    with nothing_left_behind():
        fd = memory_file(PAGE)
        os.pwrite(fd, b"look only", 0)
        reader = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        with vmm.import_handle(reader) as physical, vmm.reserve(PAGE) as va:
            with pytest.raises(errors.TensormemError):
                vmm.map(va, physical, access="read_write")
            assert vmm.mappings(va) == [] and physical.mapping_count == 0
            vmm.map(va, physical, access="read")
            assert ctypes.string_at(va.base, 9) == b"look only"
        os.close(reader)
        os.close(fd)


HEADER = struct.pack("<8sQ", b"tmphys01", PAGE)
MESSAGES: dict[str, tuple[bytes, int]] = {
    "no descriptor": (HEADER, 0),
    "two descriptors": (HEADER, 2),
    "three descriptors": (HEADER, 3),
    "a hundred descriptors": (HEADER, 100),
    "a truncated header": (HEADER[:9], 1),
    "one byte": (b"x", 1),
    "another magic": (b"tmphys99" + HEADER[8:], 1),
    "size zero": (struct.pack("<8sQ", b"tmphys01", 0), 1),
    "an impossible size": (struct.pack("<8sQ", b"tmphys01", 2**64 - 1), 1),
}


@pytest.mark.parametrize("what", MESSAGES)
def test_a_message_that_is_not_one_piece_of_memory_is_refused(
    what: str, vmm: VirtualMemoryManager, ends: tuple[socket.socket, socket.socket]
) -> None:
    message, count = MESSAGES[what]
    with nothing_left_behind():
        fd = memory_file(PAGE)
        fds = array.array("i", [fd] * count)
        ends[0].sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if count else [])
        with pytest.raises(errors.InvalidArgument):
            receive_physical(ends[1], vmm)
        os.close(fd)


def test_a_longer_datagram_is_refused(vmm: VirtualMemoryManager) -> None:
    here, there = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with here, there, nothing_left_behind():
        fd = memory_file(PAGE)
        socket.send_fds(here, [HEADER + b"more"], [fd])
        with pytest.raises(errors.InvalidArgument):
            receive_physical(there, vmm)
        os.close(fd)


def test_a_peer_that_is_gone_is_the_end_of_the_file(
    vmm: VirtualMemoryManager, ends: tuple[socket.socket, socket.socket]
) -> None:
    with nothing_left_behind():
        with vmm.alloc_physical(PAGE, exportable=True) as physical:
            ends[0].shutdown(socket.SHUT_RDWR)
            with pytest.raises(EOFError):
                receive_physical(ends[1], vmm)
            with pytest.raises(BrokenPipeError):
                send_physical(ends[0], physical)
        with pytest.raises(errors.UseAfterRelease):
            send_physical(ends[0], physical)


def test_a_message_that_nobody_receives_keeps_no_memory(vmm: VirtualMemoryManager) -> None:
    here, there = socket.socketpair()
    with nothing_left_behind():
        send_physical(here, vmm.alloc_physical(PAGE, exportable=True))
    here.close()
    there.close()


# --- Through multiprocessing ---


@contextlib.contextmanager
def child(context: BaseContext, target: Callable[..., None], *arguments: object) -> Iterator[None]:
    process = context.Process(target=target, args=arguments)  # type: ignore[attr-defined]
    process.start()
    try:
        yield
    finally:
        process.join(TIME_LIMIT)
        assert process.exitcode == 0
        process.close()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_memory_given_to_a_new_process_is_the_same_memory(vmm: VirtualMemoryManager, method: str) -> None:
    context = multiprocessing.get_context(method)
    with vmm.alloc_physical(HUGE, exportable=True) as physical:
        bytes_of(physical, 1, put=b"hello")
        here, there = context.Pipe()
        with here, child(context, answer, physical, there):
            there.close()
            assert received(here) == b"hello"
        assert bytes_of(physical, 5) == b"child"


def test_nothing_is_left_of_processes_that_were_given_memory() -> None:
    # In a process of its own: multiprocessing keeps descriptors of its helpers.
    check_python(
        """
        import multiprocessing, os
        from tensormem.vmm import VirtualMemoryManager
        if __name__ == "__main__":
            vmm, context = VirtualMemoryManager(), multiprocessing.get_context("spawn")
            physical = vmm.alloc_physical(4096, exportable=True)
            def start():
                process = context.Process(target=repr, args=(physical,))
                process.start()
                process.join()
                assert process.exitcode == 0
            start()
            before = len(os.listdir("/proc/self/fd"))
            start()
            start()
            assert len(os.listdir("/proc/self/fd")) == before
        """
    )


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_memory_goes_through_queues_and_pipes_both_ways(vmm: VirtualMemoryManager, method: str) -> None:
    context = multiprocessing.get_context(method)
    with vmm.alloc_physical(PAGE, exportable=True) as physical:
        bytes_of(physical, 1, put=b"hello")
        here, there = context.Pipe()
        queue = context.SimpleQueue()
        with here, child(context, echo, queue, there):
            there.close()
            queue.put(physical)
            assert received(here) == b"hello"
            with received(here) as returned:
                assert bytes_of(returned, 5) == b"queue"
                assert returned.manager is not vmm and returned != physical
            here.send("got it")
        queue.close()


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_pool_reads_what_it_is_given(vmm: VirtualMemoryManager, method: str) -> None:
    with vmm.alloc_physical(PAGE, exportable=True) as physical:
        bytes_of(physical, 1, put=b"pool!")
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(first_bytes, [physical] * 4) == [b"pool!"] * 4


def test_what_arrives_survives_the_closing_of_earlier_arrivals(vmm: VirtualMemoryManager) -> None:
    with vmm.alloc_physical(PAGE, exportable=True) as physical:
        here, there = multiprocessing.Pipe()
        with here, there:
            for _ in range(2):
                here.send(physical)
                arrived = received(there)
                assert bytes_of(arrived, 1) == b"\0"
                arrived.manager.close()


def test_memory_that_is_not_exportable_is_refused_by_name(vmm: VirtualMemoryManager) -> None:
    here, there = multiprocessing.Pipe()
    with here, there, nothing_left_behind(), pytest.raises(errors.InvalidArgument, match="exportable"):
        here.send(vmm.alloc_physical(PAGE))
