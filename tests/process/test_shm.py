"""Shared memory between real processes: by pickling, inheritance and fork; and nothing is left when one is killed."""

import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection

import pytest

import tensormem as tm
from support import shared_tensors
from support.holdings import open_descriptors
from support.neighbours import TIME_LIMIT, received
from tensormem.memories import allocate

SPAWN = multiprocessing.get_context("spawn")


def shared_memory_kib() -> int:
    """What the whole system has in shared memory."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Shmem:"))


def holders(inode: int) -> int:
    """How many descriptors and mappings of this file there are, in all processes."""
    return sum(held_by(process, inode) for process in os.listdir("/proc") if process.isdigit())


def held_by(process: str, inode: int) -> int:
    # The process, or a descriptor, may go while we look.
    found = 0
    with suppress(OSError):
        for fd in os.listdir(f"/proc/{process}/fd"):
            with suppress(OSError):
                found += os.stat(f"/proc/{process}/fd/{fd}").st_ino == inode
        with open(f"/proc/{process}/maps") as file:
            found += sum(line.split()[4] == str(inode) and "memfd" in line for line in file)
    return found


@pytest.fixture
def tensor() -> Iterator[tm.Tensor]:
    with tm.empty((2, 3), "int16", memory="shm").fill_(7) as made:
        yield made


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_process_gets_a_tensor_as_an_argument_and_writes_into_the_same_bytes(method: str, tensor: tm.Tensor) -> None:
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    process = context.Process(target=shared_tensors.answer, args=(tensor.T, there))  # type: ignore[attr-defined]
    process.start()
    assert received(here) == ("shm", (3, 2), (1, 3), "int16", False, [[7, 7]] * 3)
    assert received(here) == "written"
    process.join(TIME_LIMIT)
    assert process.exitcode == 0 and tensor.tolist() == [[42] * 3] * 2


def test_a_tensor_goes_through_a_pipe_and_comes_back_as_the_same_memory(tensor: tm.Tensor) -> None:
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=shared_tensors.echo, args=(there,))
    process.start()
    for sent in (tensor, tensor[1, ::-1], tensor.as_readonly(), tm.full(3, 5, "uint8")):
        here.send(sent)
        assert received(here) == shared_tensors.facts(sent)
        back = received(here)
        here.send("got it")
        assert back.tolist() == sent.tolist()
        assert back.aliases(sent) == (sent.memory == "shm")
        assert back.readonly == sent.readonly
        back.close()
    here.send(None)
    process.join(TIME_LIMIT)
    assert process.exitcode == 0


def test_a_pool_works_on_shared_tensors(tensor: tm.Tensor) -> None:
    with SPAWN.Pool(2) as pool:
        results = pool.map(shared_tensors.doubled, [tensor, tensor[0], tensor[:, 1]])
    assert [result.tolist() for result in results] == [[[14] * 3] * 2, [14] * 3, [14] * 2]
    assert all(result.memory == "shm" and not result.aliases(tensor) for result in results)


def test_a_queue_carries_descriptors_and_leaves_none(tensor: tm.Tensor) -> None:
    queue: multiprocessing.SimpleQueue[tm.Tensor] = SPAWN.SimpleQueue()
    for _ in range(2):  # the first one starts the thread that hands out descriptors
        queue.put(tensor)
        queue.get().close()
    before = open_descriptors()
    for _ in range(200):
        queue.put(tensor)
        with queue.get() as back:
            assert back.aliases(tensor)
    assert open_descriptors() == before


def test_a_plain_pickle_copies_the_bytes(tensor: tm.Tensor) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        copied = pickle.loads(pickle.dumps(tensor, protocol))
        assert copied.tolist() == tensor.tolist() and not copied.aliases(tensor) and copied.memory == "mem"


def test_a_descriptor_can_be_inherited_by_another_program(tensor: tm.Tensor) -> None:
    fd = tensor.clone_fd()
    source = (
        f"import tensormem as tm; t = tm.from_fd({fd}, 'int16', (2, 3)); print(t.tolist()); t.fill_(9); "
        "print(t.storage.owner.sealed)"
    )
    done = subprocess.run([sys.executable, "-c", source], pass_fds=[fd], capture_output=True, text=True, check=True)
    os.close(fd)
    assert done.stdout == "[[7, 7, 7], [7, 7, 7]]\nTrue\n" and tensor.tolist() == [[9] * 3] * 2


def test_descriptors_do_not_reach_other_programs_by_accident(tensor: tm.Tensor) -> None:
    fd = tensor.clone_fd()
    assert "tensormem" in os.readlink(f"/proc/self/fd/{fd}")
    source = """
import os
for fd in range(99):
    if os.path.lexists(f"/proc/self/fd/{fd}"):
        print(os.readlink(f"/proc/self/fd/{fd}"))
"""
    done = subprocess.run([sys.executable, "-c", source], close_fds=False, capture_output=True, text=True, check=True)
    os.close(fd)
    assert "memfd" not in done.stdout


def test_a_forked_child_shares_the_bytes_and_gives_back_only_its_own(tensor: tm.Tensor) -> None:
    child = os.fork()
    if child == 0:
        try:
            tensor.fill_(11)
            with tensor.map("r"):
                pass
            tensor.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert tensor.tolist() == [[11] * 3] * 2


def start(target: object, *, give: tm.Tensor | None = None) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=target, args=(there,))  # type: ignore[arg-type]
    process.start()
    there.close()
    if give is not None:
        here.send(give)
    return process, here


def kill(process: multiprocessing.process.BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(TIME_LIMIT)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("readonly", [False, True])
def test_a_killed_receiver_leaves_nothing_and_the_owner_goes_on(readonly: bool) -> None:
    tensor = tm.full(1 << 20, 1, "uint8", memory="shm")
    fd = tensor.clone_fd()
    inode = os.fstat(fd).st_ino
    os.close(fd)
    mine = holders(inode)
    process, connection = start(shared_tensors.hold, give=tensor.as_readonly() if readonly else tensor)
    received(connection)
    assert holders(inode) > mine
    kill(process)
    assert holders(inode) == mine
    assert tensor.fill_(2)[-1].item() == 2
    tensor.close()
    assert holders(inode) == 0


def test_when_the_owner_is_killed_the_receiver_keeps_the_bytes_and_the_last_one_frees_them() -> None:
    source = """
        import os, socket, sys
        import tensormem as tm
        from tensormem.memories import allocate
        tensor = tm.Tensor(allocate(8 << 20, "shm"), "uint8", 8 << 20).fill_(3)
        fd = tensor.clone_fd()
        with socket.socket(fileno=int(sys.argv[1])) as connection:
            socket.send_fds(connection, [b"x"], [fd])
            connection.recv(1)
    """
    here, there = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source), str(there.fileno())], pass_fds=[there.fileno()]
    )
    there.close()
    with here:
        _, fds, _, _ = socket.recv_fds(here, 1, 1)
        tensor = tm.from_fd(fds[0], "uint8", 8 << 20)
        inode = os.fstat(fds[0]).st_ino
        os.close(fds[0])
        process.send_signal(signal.SIGKILL)
        process.wait(TIME_LIMIT)
    assert tensor[-1].item() == 3 and tensor.fill_(4)[0].item() == 4
    assert holders(inode) == held_by(str(os.getpid()), inode) > 0
    tensor.close()
    assert holders(inode) == 0


def test_processes_killed_at_any_moment_leave_no_memory_and_no_names() -> None:
    names, before = set(os.listdir("/dev/shm")), shared_memory_kib()
    for turn in range(4):
        running = [start(shared_tensors.churn) for _ in range(2)]
        for _, connection in running:
            received(connection)
        for process, connection in running:
            connection.poll(0.01 * turn)  # some work goes on; the moment of the kill is any
            kill(process)
    ours = {name for name in os.listdir("/dev/shm") if "tensormem" in name}
    assert ours <= names
    # Every one of them held half a megabyte.
    assert shared_memory_kib() - before < 8 * 300


def test_memory_that_peers_may_only_read_arrives_read_only() -> None:
    tensor = tm.Tensor(allocate(6, "shm", peers="r"), "uint8", 6).fill_(1)
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=shared_tensors.answer, args=(tensor, there))
    process.start()
    assert received(here) == ("shm", (6,), (1,), "uint8", True, [1] * 6)
    assert received(here) == "written"
    process.join(TIME_LIMIT)
    assert process.exitcode == 0 and tensor.tolist() == [1] * 6
