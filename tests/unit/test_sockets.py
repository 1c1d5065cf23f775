"""Sockets that threads share: closing wakes who waits, signals are heard, and a lack of descriptors has a name."""

import errno
import os
import random
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tensormem as tm
from support.holdings import open_descriptors
from support.waiting import eventually
from tensormem import errors
from tensormem._core import describe_tensor
from tensormem.distributed import handover_messages as messages
from tensormem.distributed.delivery import take
from tensormem.distributed.handover import HandOverServer
from tensormem.distributed.worker_discovery import Presence, ask
from tensormem.sockets.connection import Connection, connected
from tensormem.sockets.deadline import Deadline
from tensormem.sockets.listener import Listener
from tensormem.sockets.shared_socket import SharedSocket


@contextmanager
def waiting(action: Callable[[], object], on: SharedSocket, threads: int = 1) -> Iterator[list[BaseException]]:
    """Threads that wait in `action` while the body runs; the errors that they ended in."""
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            action()
        except BaseException as error:
            ended.append(error)

    started = [threading.Thread(target=wait) for _ in range(threads)]
    for thread in started:
        thread.start()
    eventually(lambda: len(on._wakers) == threads, "they do not wait")
    yield ended
    for thread in started:
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """This process can have no more of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 3, hard))
    held = []
    try:
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)


# --- Closing ---


def test_closing_a_channel_wakes_all_who_wait_for_it() -> None:
    here, there = tm.Channel.pair()
    before = open_descriptors()
    sent = tm.zeros(4, memory="shm")
    with here, waiting(there.receive, there._connection, 3) as ended:
        there.close()
    assert [str(error) for error in ended] == ["the channel is closed: this end was closed"] * 3
    here, there = tm.Channel.pair()
    with there:
        with pytest.raises(errors.TimedOut):
            while True:
                here.send(sent, timeout=0)
        with waiting(lambda: here.send(sent), here._connection) as ended:
            here.close()
    assert isinstance(ended[0], errors.ChannelClosed)
    sent.close()
    assert open_descriptors() == before - 2


def test_closing_a_listener_wakes_who_accepts_and_frees_the_address(tmp_path: Path) -> None:
    for address in (str(tmp_path / "it"), f"@tensormem-test-{os.getpid()}"):
        for _ in range(3):
            listener = tm.Channel.listen(address)
            with waiting(listener.accept, listener._listener, 2) as ended:
                listener.close()
            assert [type(error) for error in ended] == [errors.ChannelClosed] * 2
            with pytest.raises(errors.ChannelClosed):
                listener.accept(timeout=0)
    assert not (tmp_path / "it").exists()


def test_closing_here_is_not_noticed_by_others_that_hold_the_same_socket() -> None:
    here, there = tm.Channel.pair()
    with here:
        copy = tm.Channel(socket.socket(fileno=os.dup(there.fileno())))
        with copy, waiting(there.receive, there._connection):
            there.close()
            here.send(tm.full(2, 5, "int8", memory="shm"))
            assert copy.receive(timeout=60).tolist() == [5, 5]


def test_a_descriptor_stays_until_the_last_call_that_uses_it_is_done() -> None:
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shared = Connection(first)
    with second:
        number = shared.fileno()
        seen: list[bool] = []

        def use(used: socket.socket) -> None:
            shared.close()
            seen.append(shared.closed and shared.fileno() == -1 and used.fileno() == number)

        shared.when_ready(use, 0, Deadline(0), "use")
        assert seen == [True] and first.fileno() == -1


def test_a_signal_is_heard_while_somebody_waits() -> None:
    here, there = tm.Channel.pair()

    def interrupt() -> None:
        eventually(lambda: bool(there._connection._wakers), "it does not wait")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with here, there, pytest.raises(KeyboardInterrupt):
        there.receive()
    thread.join()
    assert there._connection._wakers == set() and there._connection._users == 0


def test_a_forked_child_can_use_a_channel_that_a_thread_of_its_parent_waits_for() -> None:
    here, there = tm.Channel.pair()
    with here, waiting(there.receive, there._connection):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                here.send(tm.zeros(1, memory="shm"), timeout=60)
                there.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    there.close()


# --- Descriptors ---


def test_a_lack_of_descriptors_is_an_error_with_a_name_and_the_limit(tmp_path: Path) -> None:
    attempts: dict[str, Callable[[], object]] = {
        "pair": tm.Channel.pair,
        "listen": lambda: tm.Channel.listen(tmp_path / "it"),
        "connect": lambda: tm.Channel.connect(tmp_path / "it"),
        "hand over": HandOverServer,
        "presence": lambda: Presence("test", -1, 0, dict),
    }
    offer = tm.top.Service
    for action in attempts.values():
        before = open_descriptors()
        with no_descriptors_left(), pytest.raises(errors.DriverError, match="RLIMIT_NOFILE") as raised:
            action()
        assert raised.value.code == errno.EMFILE
        assert open_descriptors() == before
    with no_descriptors_left(), pytest.raises(errors.CannotWatch, match="RLIMIT_NOFILE"):
        offer()


def test_without_descriptors_accepting_fails_by_name_and_waiting_goes_on() -> None:
    address = f"@tensormem-test-{os.getpid()}"
    here, there = tm.Channel.pair()
    with tm.Channel.listen(address) as listener, tm.Channel.connect(address), here, there:
        with no_descriptors_left():
            with pytest.raises(errors.DriverError, match="RLIMIT_NOFILE"):
                listener.accept(timeout=60)
            with pytest.raises(errors.TimedOut):
                there.receive(timeout=0.2)  # more than one look
            ended: list[BaseException] = []

            def wait() -> None:
                try:
                    there.receive()
                except errors.ChannelClosed as error:
                    ended.append(error)

            thread = threading.Thread(target=wait)
            thread.start()
            eventually(lambda: there._connection._users == 1, "it does not wait")
            there.close()
            thread.join(60)
            assert len(ended) == 1
        with listener.accept(timeout=60):
            pass


# --- Hostile messages ---


def test_random_packets_with_random_descriptors_stop_no_hand_over_server_and_leave_nothing_in_it() -> None:
    dice = random.Random(18)
    tensor = tm.full(3, 7, "int8", memory="shm")
    good = messages.Request(messages.BRING, "it", rest=describe_tensor(tensor, False)).format()
    with HandOverServer() as server:
        server.offer("it", [tensor])
        before = open_descriptors()
        for _ in range(150):
            with connected(server.address, Deadline(60)) as hostile:
                hostile.settimeout(60)
                for _ in range(dice.randrange(1, 6)):
                    message = bytearray(dice.choice((good, dice.randbytes(dice.randrange(1, 9000)))))
                    message[dice.randrange(len(message))] ^= dice.randrange(256)
                    try:
                        socket.send_fds(hostile, [message], [0] * dice.choice((0, 1, 1, 2, 4, 5, 60)))
                        assert hostile.recv(9000)[:1] in (b"Y", b"N", b"V", b"")
                    except (BrokenPipeError, ConnectionResetError):
                        break
        assert take(server.address, "it", 1)[0].tolist() == [7] * 3
        eventually(lambda: (server.waiting, open_descriptors()) == (0, before), "the server keeps something")


def test_random_questions_stop_no_worker_from_answering() -> None:
    dice = random.Random(18)
    with Presence("test-lines", -1, 0, lambda: {"used": 7}) as here:
        before = open_descriptors()
        for _ in range(150):
            with connected(here.member.address, Deadline(60)) as hostile:
                hostile.settimeout(60)
                for _ in range(dice.randrange(1, 6)):
                    piece = dice.choice((b"\n", b"let me join\xff", dice.randbytes(dice.randrange(1, 90_000))))
                    try:
                        hostile.send(piece)
                    except (BrokenPipeError, ConnectionResetError):
                        break
        assert ask(here.member, timeout=60) == {"used": 7}
        eventually(lambda: open_descriptors() == before, "the server keeps something")


# --- Addresses ---


def test_a_listener_in_the_place_of_a_killed_one_and_not_in_that_of_one_that_is_about_to_listen(tmp_path: Path) -> None:
    path = tmp_path / "it"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as about_to:
        about_to.bind(str(path))
        with pytest.raises(errors.DriverError, match="EADDRINUSE"):
            Listener(path)
    with Listener(path) as listener:
        assert path.exists() and listener.fileno() >= 0
    assert not path.exists()
