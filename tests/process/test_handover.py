"""Memory handed over by descriptor between real processes, some of which are killed in the middle of it."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import tensormem as tm
from support.clusters import eventually, memory_descriptors
from support.holdings import nothing_left_behind
from tensormem import errors
from tensormem.distributed import handover_messages as messages
from tensormem.distributed.delivery import Delivery, take
from tensormem.distributed.handover import HandOverServer
from tensormem.distributed.handover_messages import can_hand_over
from tensormem.sockets.connection import Connection
from tensormem.sockets.deadline import Deadline


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    with nothing_left_behind():
        yield


class Peer:
    """Another process that has what we handed over and is told what to do, line by line."""

    def __init__(self, source: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(source), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def end(self) -> None:
        self.process.communicate("\n")


SERVE = """
import sys
import tensormem as tm
from tensormem.distributed.handover import HandOverServer
server = HandOverServer(sys.argv[1])
server.offer("it", [tm.full(1000, 7, "uint8", memory="shm")])
print("ready", flush=True)
sys.stdin.readline()
server.close()
"""
BRING = """
import sys
import tensormem as tm
from tensormem.distributed.delivery import Delivery
delivery = Delivery(sys.argv[1])
print(delivery.bring(tm.full(1000, 5, "uint8", memory="shm")), flush=True)
sys.stdin.readline()
"""
SERVE_WITHOUT_ROOM = """
import os, resource, sys
import tensormem as tm
from tensormem.distributed.handover import HandOverServer
server = HandOverServer(sys.argv[1])
server.offer("it", [tm.full(1000, 7, "uint8", memory="shm")])
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), most))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    print("full", flush=True)
sys.stdin.readline()
for fd in held:
    os.close(fd)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, most))
sys.stdin.readline()
"""
TAKE = """
import sys
from tensormem.distributed.delivery import take
taken = take(sys.argv[1], "it", 1)
taken[0].fill_(9)
print("taken", flush=True)
sys.stdin.readline()
"""


def name() -> str:
    return f"@tensormem-test-{os.getpid()}-{os.urandom(4).hex()}"


def test_what_is_taken_is_the_same_memory_in_every_process() -> None:
    with HandOverServer() as server:
        mine = tm.zeros((10, 100), "uint8", memory="shm")
        server.offer("it", [mine[::2], mine])
        peer = Peer(TAKE, server.address)
        assert peer.hear() == "taken"
        assert mine[0, 0].item() == 9 and mine[1, 0].item() == 0
        peer.end()


def test_memory_stays_with_who_took_it_when_the_owner_is_killed() -> None:
    address = name()
    owner = Peer(SERVE, address)
    assert owner.hear() == "ready"
    taken = take(address, "it", 1)
    owner.kill()
    assert taken[0].tolist() == [7] * 1000
    with pytest.raises(errors.DriverError):
        take(address, "it", 1)


def test_a_server_without_descriptors_serves_when_it_has_some_again() -> None:
    address = name()
    peer = Peer(SERVE_WITHOUT_ROOM, address)
    assert peer.hear() == "full"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, address, "it", 1)
        assert not waiting.done()
        assert peer.process.stdin is not None
        peer.process.stdin.write("\n")
        peer.process.stdin.flush()
        (tensor,) = waiting.result(timeout=20)
    assert tensor.tolist() == [7] * 1000
    tensor.close()
    peer.end()


def test_a_taker_that_is_killed_leaves_the_owner_as_it_was() -> None:
    with HandOverServer() as server:
        mine = tm.zeros(1000, "uint8", memory="shm")
        server.offer("it", [mine])
        before = len(memory_descriptors(os.getpid()))
        peer = Peer(TAKE, server.address)
        assert peer.hear() == "taken"
        peer.kill()
        assert mine[0].item() == 9
        assert len(memory_descriptors(os.getpid())) == before
        assert [tensor.tolist() for tensor in take(server.address, "it", 1)] == [[9] * 1000]


def test_what_a_killed_process_brought_is_let_go() -> None:
    with HandOverServer() as server:
        before = len(memory_descriptors(os.getpid()))
        peer = Peer(BRING, server.address)
        token = peer.hear()
        assert server.waiting == 1
        peer.kill()
        eventually(lambda: server.waiting == 0, "the server holds on to it")
        assert server.collect(token) is None
        eventually(lambda: len(memory_descriptors(os.getpid())) == before, "a descriptor is left")


def test_what_was_collected_stays_when_its_bringer_is_killed() -> None:
    with HandOverServer() as server:
        peer = Peer(BRING, server.address)
        tensor = server.collect(peer.hear())
        peer.kill()
        assert tensor is not None and tensor.tolist() == [5] * 1000
        assert server.waiting == 0


def test_a_delivery_that_ends_takes_back_what_was_not_collected() -> None:
    with HandOverServer() as server:
        with Delivery(server.address) as delivery:
            tokens = [delivery.bring(tm.zeros(8, "uint8", memory="shm")) for _ in range(3)]
            assert server.waiting == 3
            assert tokens[1] is not None and server.collect(tokens[1]) is not None
        eventually(lambda: server.waiting == 0, "the server holds on to it")
        assert delivery.bring(tm.zeros(8, memory="shm")) is None


def test_nobody_there_means_that_nothing_is_brought() -> None:
    with Delivery(name()) as delivery:
        assert delivery.bring(tm.zeros(8, memory="shm")) is None


def test_a_server_that_is_killed_while_something_is_brought_means_that_nothing_is() -> None:
    address = name()
    owner = Peer(SERVE, address)
    assert owner.hear() == "ready"
    with Delivery(address) as delivery:
        assert delivery.bring(tm.zeros(8, memory="shm")) is not None
        owner.kill()
        assert delivery.bring(tm.zeros(8, memory="shm")) is None


def test_what_was_withdrawn_is_offered_no_more_and_who_took_it_keeps_it() -> None:
    with HandOverServer() as server:
        server.offer("it", [tm.full(3, 4, "uint8", memory="shm")])
        taken = take(server.address, "it", 1)
        assert len(server.withdraw("it")) == 1 and server.withdraw("it") == []
        with pytest.raises(errors.ChannelClosed, match="does not have it"):
            take(server.address, "it", 1)
        assert taken[0].tolist() == [4, 4, 4]


@pytest.mark.parametrize("readonly", [False, True])
def test_who_takes_may_write_only_if_the_owner_shares_it_so(readonly: bool) -> None:
    mine = tm.zeros(8, "uint8", memory="shm")
    with HandOverServer() as server:
        server.offer("it", [mine.as_readonly() if readonly else mine])
        assert take(server.address, "it", 1)[0].readonly is readonly


def test_memory_without_a_descriptor_is_refused_in_words() -> None:
    plain = tm.zeros(8)
    assert not can_hand_over(plain)
    with HandOverServer() as server:
        server.offer("it", [plain])
        with pytest.raises(errors.ChannelClosed, match="descriptor of mem memory"):
            take(server.address, "it", 1)


def talk(server: HandOverServer, message: bytes, descriptors: list[int]) -> bytes:
    with Connection.to(server.address, Deadline(30)) as connection:
        connection.send(message, descriptors, Deadline(30))
        return connection.receive(4096, Deadline(30))[0]


def test_another_version_is_told_ours_and_its_descriptors_are_closed() -> None:
    request = bytearray(messages.Request(messages.BRING, "it").format())
    request[2] = 9
    memory = tm.zeros(8, memory="shm")
    fd = memory.clone_fd()
    with HandOverServer() as server:
        before = len(memory_descriptors(os.getpid()))
        assert talk(server, bytes(request), [fd]) == messages.OTHER_VERSION + b"\x01\x00"
        assert len(memory_descriptors(os.getpid())) == before
    os.close(fd)


@pytest.mark.parametrize(
    "message",
    [b"x", b"ho" + bytes(100), messages.Request(messages.BRING, "it").format(), b"ho\x01\x00Q" + bytes(68)],
    ids=["short", "zeros", "nothing brought", "no such verb"],
)
def test_nonsense_is_answered_with_no_and_the_server_goes_on(message: bytes) -> None:
    with HandOverServer() as server:
        server.offer("it", [tm.full(1, 3, "uint8", memory="shm")])
        assert talk(server, message, [])[:1] in (messages.NO, messages.OTHER_VERSION)
        assert take(server.address, "it", 1)[0].tolist() == [3]
        assert server.waiting == 0


def test_descriptors_of_no_memory_are_refused_and_closed() -> None:
    described = messages.describe(tm.zeros(8, memory="shm"))
    os.close(described[1])
    with HandOverServer() as server, socket.socket() as foreign:
        request = messages.Request(messages.BRING, "it", rest=described[0]).format()
        assert talk(server, request, [foreign.fileno()])[:1] == messages.NO


def test_a_server_stays_with_the_process_that_made_it() -> None:
    address = name()
    with HandOverServer(address) as server:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write, b"1" if not server.is_running else b"0")
            os._exit(0)
        assert os.read(read, 1) == b"1"
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)
        assert server.is_running
    with HandOverServer(address):
        pass


def test_an_address_in_use_is_an_error() -> None:
    with HandOverServer() as server, pytest.raises(errors.DriverError, match="EADDRINUSE"):
        HandOverServer(server.address)


def test_closing_twice_is_closing_once_and_a_long_token_is_refused() -> None:
    server = HandOverServer()
    with pytest.raises(errors.InvalidArgument, match="at most 64"):
        take(server.address, "t" * 65, 1)
    server.close()
    server.close()
    assert not server.is_running
