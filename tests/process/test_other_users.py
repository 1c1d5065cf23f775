"""Another user of the machine can neither learn nor stop anything: tried by real processes of another user."""

import fcntl
import json
import logging
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import tensormem as tm
from support.holdings import open_descriptors
from support.other_users import free_uid, needs_root, other_user, outcome
from support.waiting import eventually
from tensormem import errors
from tensormem.distributed import Declaration, Node, WorkerStack
from tensormem.distributed.delivery import Delivery, take
from tensormem.distributed.handover import HandOverServer
from tensormem.distributed.looking import node_rows
from tensormem.distributed.node_entry import entry
from tensormem.distributed.worker_discovery import Presence, ask, beacons, members
from tensormem.sockets import directory
from tensormem.sockets.connection import Connection
from tensormem.sockets.deadline import Deadline
from tensormem.sockets.listener import Listener
from tensormem.sockets.peer import Peer

pytestmark = needs_root

NODE = Node.here("test", f"others-of-{os.getpid()}")
DECLARED = Declaration(budget="32MiB", keep=0)


def listening(address: bytes | str, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(address)
    made.listen(16)
    return made


def connecting(address: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> Callable[[], None]:
    def attempt() -> None:
        socket.socket(socket.AF_UNIX, kind).connect(address)

    return attempt


# --- Workers of a node ---


def test_another_user_cannot_pose_as_a_worker_or_hold_the_entry() -> None:
    """It takes the names without a file that a container looks for: it runs as another user, and is not believed."""
    with Presence(NODE.key, -1, 7, dict):
        (beacon,) = beacons(NODE.key)
    name = beacon.address.removesuffix(beacon.token).replace("@", "\0", 1)
    names = [f"{name}{number:016x}" for number in range(8)]
    with other_user(lambda: ("taken", [listening(name, socket.SOCK_SEQPACKET) for name in names])) as stranger:
        assert stranger.report == "taken" and len(beacons(NODE.key)) == 8
        stack = WorkerStack(DECLARED, NODE, "honest")  # not SetUpConflict, and not after the patience of the entry
        assert [row["worker"] for row in node_rows(NODE)] == ["honest"]
        second = WorkerStack(DECLARED, NODE, "second")  # it joins the first
        assert stack.budget.shared is not None and len(stack.budget.shared.participants()) == 2
        second.close()
        stack.close()


def test_another_user_reaches_no_worker_and_sees_no_name() -> None:
    own = directory.own_directory()
    with entry(NODE.key):
        assert os.path.exists(f"{own}/entry")
    with Presence(NODE.key, -1, 7, lambda: {"used": 7}) as here:
        address = here.member.address
        attempts: dict[str, Callable[[], Any]] = {
            "list": lambda: os.listdir(own),
            "connect": connecting(address, socket.SOCK_SEQPACKET),
            "pose": lambda: listening(f"{own}/worker-{NODE.key}-{7:016x}.3e7"),
            "lock": lambda: os.open(f"{own}/entry", os.O_RDWR),
            "lock the directory": lambda: fcntl.flock(os.open(own, os.O_RDONLY), fcntl.LOCK_EX),
            "remove": lambda: os.unlink(address),
            "replace": lambda: os.rename(own, own + "-gone"),
        }
        with other_user(lambda: {name: outcome(attempt) for name, attempt in attempts.items()}) as stranger:
            assert stranger.report == dict.fromkeys(attempts, "PermissionError")
        assert [ask(member) for member in members(NODE.key)] == [{"used": 7}]


def test_what_every_user_can_read_of_sockets_says_nothing_of_a_worker() -> None:
    """That there is one they can see, not of which node, nor anything else; and it answers them nothing."""
    with Presence(NODE.key, 77_123, 0x5EC2E7, dict) as here:

        def look() -> list[str]:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(beacon.replace("@", "\0", 1))
                return [Path("/proc/net/unix").read_text(), repr(client.recv(100))]

        (beacon,) = (each.address for each in beacons(NODE.key))
        with other_user(look) as stranger:
            seen, answer = stranger.report
        assert answer == "b''"
        for fact in (NODE.key, "77123", "5ec2e7", str(0x5EC2E7), os.path.basename(here.member.address)):
            assert fact not in seen
        assert members(NODE.key) == [here.member]
        assert not [name for name in os.listdir(directory.own_directory()) if name.startswith(".")]


def test_a_worker_that_another_user_answers_for_is_not_believed(shared: Path) -> None:
    """As if it could listen at the address after all: the kernel says who it is."""
    with Presence(NODE.key, -1, 0, dict) as here:
        member, path = here.member, here.member.address
    meeting = shared / "meeting"
    meeting.mkdir()
    meeting.chmod(0o777)

    def body() -> tuple[str, object]:
        made = listening(str(meeting / "it"), socket.SOCK_SEQPACKET)
        os.chmod(meeting / "it", 0o777)
        return "listens", made

    with other_user(body) as stranger:
        os.symlink(meeting / "it", path)
        try:
            assert ask(member) is None
            with pytest.raises(errors.ChannelRefused) as raised:
                Connection.to(path, Deadline(30))
            assert raised.value.uid == stranger.uid
        finally:
            os.unlink(path)


# --- The directory ---


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place like /tmp: everybody may put something there, and nobody may take away what is another's."""
    with tempfile.TemporaryDirectory(prefix="tm-", dir="/tmp") as place:  # addresses are short
        os.chmod(place, 0o1777)
        monkeypatch.setattr(directory, "_PARENTS", (place,))
        yield Path(place)


def fake_directory(path: Path, victim: str) -> str:
    """A directory as ours would be, with a worker in it as ours would be."""
    path.mkdir(mode=0o777)
    path.chmod(0o777)
    made = listening(str(path / f"worker-{NODE.key}-{7:016x}.3e7"))
    return f"{victim} {made.detach()}"


SQUATS: dict[str, Callable[[Path], object]] = {
    "a directory": lambda path: fake_directory(path, "of"),
    "a closed directory": lambda path: path.mkdir(mode=0o700),
    "a file": lambda path: path.write_text("mine"),
    "a link": lambda path: path.symlink_to(path.parent),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("what", SQUATS)
def test_a_name_that_another_user_took_first_stops_nobody(what: str, shared: Path) -> None:
    """All processes find the same other directory, before and after the name is free again."""
    name = shared / f"tensormem-{os.geteuid()}"
    with other_user(lambda: str(SQUATS[what](name))):
        here = directory.own_directory()
        assert here != str(name) and Path(here).stat().st_uid == os.geteuid()
        assert members(NODE.key) == []
        stack = WorkerStack(DECLARED, NODE, "honest")
        assert [row["worker"] for row in node_rows(NODE)] == ["honest"]
        stack.close()
    if name.is_dir() and not name.is_symlink():
        for each in name.iterdir():
            each.unlink()
        name.rmdir()
    else:
        name.unlink()
    directory._known.clear()
    assert directory.own_directory() == here


def test_processes_that_start_together_find_one_directory_although_the_name_is_taken(shared: Path) -> None:
    honest, stranger = free_uid(60_001), free_uid(61_001)
    name = shared / f"tensormem-{honest}"
    with other_user(lambda: os.mkdir(name, 0o700), stranger), ExitStack() as users:
        reports: list[str] = []

        def start() -> None:
            reports.append(users.enter_context(other_user(directory.own_directory, honest)).report)

        threads = [threading.Thread(target=start) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(reports) == 12 and len(set(reports)) == 1
    assert Path(reports[0]).stat().st_uid == honest and os.stat(reports[0]).st_mode & 0o777 == 0o700


# --- Hand-over, channels, watching ---


def test_memory_that_is_offered_is_out_of_reach_of_another_user() -> None:
    with HandOverServer() as server:
        server.offer("it", [tm.full(3, 7, "int8", memory="shm")])
        with other_user(lambda: outcome(connecting(server.address, socket.SOCK_SEQPACKET))) as stranger:
            assert stranger.report == "PermissionError"
        assert take(server.address, "it", 1)[0].tolist() == [7] * 3


def test_a_server_without_a_file_refuses_another_user_by_name_and_serves_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its queue is full of connections of another user, some of which ask and never read."""
    address = f"@tensormem-others-{os.getpid()}"

    def flood() -> tuple[list[str], object]:
        held, heard = [], []
        for number in range(300):
            made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            made.settimeout(30)
            try:
                made.connect("\0" + address[1:])
                held.append(made)
                if number % 2:
                    made.send(b"ho\1\0T" + bytes(68))
            except OSError:
                pass
        for each in held:
            try:
                heard.append(each.recv(100).decode())
            except OSError as error:
                heard.append(type(error).__name__)
        return sorted(set(heard)), held

    with caplog.at_level(logging.WARNING), HandOverServer(address) as server:
        server.offer("it", [tm.full(3, 7, "int8", memory="shm")])
        with other_user(flood) as stranger, Delivery(address) as delivery:
            assert set(stranger.report) <= {"", "ConnectionResetError"}  # it heard nothing
            assert take(address, "it", 1)[0].tolist() == [7] * 3
            assert delivery.bring(tm.zeros(3, memory="shm")) is not None
            uid = stranger.uid
    refusals = [text for text in caplog.messages if "refused" in text]
    assert refusals == [f"tensormem-handover refused a connection of user {uid}, who is not let in"]


def test_where_another_user_listens_nobody_is_led(caplog: pytest.LogCaptureFixture) -> None:
    address = f"@tensormem-others-{os.getpid()}"
    with other_user(lambda: ("up", listening("\0" + address[1:], socket.SOCK_SEQPACKET))) as stranger:
        for attempt in (lambda: take(address, "it", 1), lambda: tm.Channel.connect(address)):
            with pytest.raises(errors.ChannelRefused) as raised:
                attempt()
            assert raised.value.uid == stranger.uid
        with Delivery(address) as delivery:
            assert delivery.bring(tm.zeros(3, memory="shm")) is None
        with pytest.raises(errors.DriverError, match="EADDRINUSE"):
            tm.Channel.listen(address)


@pytest.mark.parametrize("uid", [54_321, 2**31 + 7, 2**32 - 3])
def test_users_with_large_numbers_are_known_by_them(uid: int) -> None:
    address = f"@tensormem-others-{os.getpid()}"
    with tm.Channel.listen(address) as strict:
        with (
            other_user(lambda: outcome(connecting("\0" + address[1:], socket.SOCK_SEQPACKET)), uid) as stranger,
            pytest.raises(errors.ChannelRefused) as raised,
        ):
            strict.accept(timeout=60)
        assert (raised.value.uid, stranger.report) == (uid, "done")

    def welcome() -> tuple[str, object]:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.connect("\0" + address[1:])
        return "in", made

    with (
        tm.Channel.listen(address, uids=(uid,)) as open_to_it,
        other_user(welcome, uid) as stranger,
        open_to_it.accept(timeout=60) as channel,
    ):
        assert channel.uids == {uid} and channel._connection.peer == Peer(stranger.pid, uid, uid)


def test_another_user_cannot_watch_or_be_watched_in_place_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: Path
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with tm.top.serve() as service:
        place = os.path.dirname(service.path)
        attempts: dict[str, Callable[[], Any]] = {
            "list": lambda: os.listdir(place),
            "connect": connecting(service.path),
            "pose": lambda: listening(f"{place}/1-00000000.sock"),
        }
        with other_user(lambda: {name: outcome(attempt) for name, attempt in attempts.items()}) as stranger:
            assert stranger.report == dict.fromkeys(attempts, "PermissionError")
        assert [offer.pid for offer in tm.top.offers()] == [os.getpid()]


# --- Those of the same user that misbehave ---


@contextmanager
def silent_clients(address: str, count: int) -> Iterator[None]:
    with ExitStack() as held:
        for _ in range(count):
            client = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            client.connect(address)
        yield


def test_silent_clients_keep_no_other_from_its_answer() -> None:
    with Presence(NODE.key, -1, 0, lambda: {"used": 7}) as here, silent_clients(here.member.address, 50):
        for _ in range(20):
            assert ask(here.member, timeout=60) == {"used": 7}


def test_descriptors_that_nobody_asked_for_are_closed_and_long_questions_end_the_connection() -> None:
    with (
        Presence(NODE.key, -1, 0, lambda: {"used": 7}) as here,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client,
    ):
        client.connect(here.member.address)
        read, write = os.pipe()
        socket.send_fds(client, [b"what?"], [write] * 3)
        assert json.loads(client.recv(1000)) == {"used": 7}
        os.close(write)
        assert os.read(read, 1) == b""  # nobody else has the other end any more
        os.close(read)
        client.settimeout(60)
        client.send(b"x" * 70_000)
        assert client.recv(100) == b""


def test_an_entry_that_was_open_at_a_fork_is_not_held_by_the_child() -> None:
    (stays, leave), (told, tell) = os.pipe(), os.pipe()
    with entry(NODE.key):
        child = os.fork()
        if child == 0:
            os.close(leave)
            os.write(tell, b"1")
            os.read(stays, 1)
            os._exit(0)
        assert os.read(told, 1) == b"1"
    with entry(NODE.key, timeout=0):
        pass
    for fd in (stays, leave, told, tell):
        os.close(fd)
    os.waitpid(child, 0)


def test_threads_of_one_process_go_through_the_entry_one_at_a_time() -> None:
    with entry(NODE.key):
        found: list[str] = []

        def attempt() -> None:
            try:
                with entry(NODE.key, timeout=0):
                    found.append("inside")
            except errors.DistributedError as error:
                found.append(str(error))

        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
        assert "has been entering" in found[0]


def test_what_killed_processes_left_is_removed_and_what_lives_is_not_disturbed() -> None:
    own = Path(directory.own_directory())
    left = own / f"worker-{NODE.key}-{2:016x}.3e7"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.bind(str(left))
    before = open_descriptors()
    with Listener(own / f"worker-{NODE.key}-{1:016x}.3e7") as living:
        assert [member.token for member in members(NODE.key)] == [f"{1:016x}"]
        with pytest.raises(errors.TimedOut):
            living.accept(Deadline(0))  # looking leaves no connection behind
    assert not left.exists() and members(NODE.key) == []
    eventually(lambda: open_descriptors() == before, "a descriptor is left")
