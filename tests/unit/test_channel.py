"""Channels within one process: what arrives, who is let in, and what hostile messages come to."""

import array
import errno
import os
import pickle
import random
import resource
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensormem as tm
from support.holdings import open_descriptors
from tensormem import errors
from tensormem._core import MAX_MESSAGE_BYTES, describe_tensor, parse_message


@pytest.fixture
def ends() -> Iterator[tuple[tm.Channel, tm.Channel]]:
    here, there = tm.Channel.pair()
    with here, there:
        yield here, there


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, tm.Channel]]:
    """A peer that says what it likes, and the channel that hears it."""
    peer, mine = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with peer, tm.Channel(mine) as channel:
        yield peer, channel


def test_a_tensor_arrives_as_the_same_bytes_with_its_layout(ends: tuple[tm.Channel, tm.Channel]) -> None:
    here, there = ends
    sent = tm.full((4, 6), 3, "int32", memory="shm")
    for view in (sent, sent.T, sent[1:, ::-2], sent[2, 3], sent[:, :0]):
        here.send(view)
        seen = there.receive(timeout=5)
        assert (seen.shape, seen.strides, seen.offset) == (view.shape, view.strides, view.offset)
        assert (seen.dtype, seen.readonly, str(seen.memory)) == (view.dtype, False, "shm")
        assert seen.tolist() == view.tolist()
        assert seen.aliases(sent)
    here.send(sent)
    there.receive(timeout=5).fill_(9)
    assert sent[0, 0].item() == 9


def test_a_tensor_sent_read_only_cannot_be_written_by_the_receiver(ends: tuple[tm.Channel, tm.Channel]) -> None:
    here, there = ends
    sent = tm.full(8, 3, "int32", memory="shm")
    for kind in (sent, sent.as_readonly()):
        here.send(kind, readonly=kind is sent)
        seen = there.receive(timeout=5)
        assert seen.readonly and seen.tolist() == [3] * 8
        with pytest.raises(errors.TensormemError):
            fd = seen.clone_fd()
            try:
                tm.from_fd(fd, "int32", 8)
            finally:
                os.close(fd)


def test_tensors_outlive_the_channel(ends: tuple[tm.Channel, tm.Channel]) -> None:
    here, there = ends
    here.send(tm.full(8, 3, "int32", memory="shm"))
    here.close()
    seen = there.receive(timeout=5)
    there.close()
    assert seen.tolist() == [3] * 8


def test_a_frame_ring_arrives(ends: tuple[tm.Channel, tm.Channel]) -> None:
    here, there = ends
    with tm.FrameRing(2, (2, 2), "uint8") as ring:
        here.send(ring, readonly=True)
        with there.receive_ring(timeout=5) as reader:
            with ring.write() as frame:
                frame.tensor.fill_(4)
            with reader.read(timeout=5) as seen:
                assert seen.tensor.tolist() == [[4, 4], [4, 4]]
            assert reader.readonly
        here.send(ring)
        assert not there.receive_ring(timeout=5).readonly


def test_memory_that_cannot_be_shared_is_refused_and_nothing_is_sent(ends: tuple[tm.Channel, tm.Channel]) -> None:
    here, there = ends
    with pytest.raises(errors.TensormemError):
        here.send(tm.zeros(4))
    with pytest.raises(errors.InvalidArgument, match="not list"):
        here.send([1, 2])  # type: ignore[arg-type]
    closed = tm.zeros(4, memory="shm")
    closed.close()
    with pytest.raises(errors.UseAfterFree):
        here.send(closed)
    with pytest.raises(errors.TimedOut):
        there.receive(timeout=0)


def test_what_was_not_asked_for_is_dropped(ends: tuple[tm.Channel, tm.Channel]) -> None:
    here, there = ends
    before = open_descriptors()
    with tm.FrameRing(2, 4) as ring:
        here.send(ring)
        with pytest.raises(errors.MalformedMessage, match="a frame ring came"):
            there.receive(timeout=5)
    here.send(tm.zeros(4, memory="shm"))
    with pytest.raises(errors.MalformedMessage, match="a tensor came"):
        there.receive_ring(timeout=5)
    assert open_descriptors() == before


def test_a_closed_channel_says_so(ends: tuple[tm.Channel, tm.Channel]) -> None:
    here, there = ends
    there.close()
    there.close()
    assert (there.closed, there.fileno(), repr(there)) == (True, -1, "<Channel closed>")
    for action in (there.receive, there.receive_ring, lambda: there.send(tm.zeros(4, memory="shm"))):
        with pytest.raises(errors.ChannelClosed, match="this end"):
            action()
    with pytest.raises(errors.ChannelClosed, match="other end"):
        here.receive(timeout=5)
    with pytest.raises(errors.ChannelClosed, match="other end"):
        here.send(tm.zeros(4, memory="shm"))


def test_nobody_waits_longer_than_asked(ends: tuple[tm.Channel, tm.Channel]) -> None:
    here, there = ends
    with pytest.raises(errors.TimedOut) as raised:
        there.receive(timeout=0.01)
    assert raised.value.seconds == 0.01
    sent = tm.zeros(4, memory="shm")
    with pytest.raises(errors.TimedOut, match="takes no more"):
        while True:
            here.send(sent, timeout=0)
    for wrong in (-1, "1", True, float("nan")):
        with pytest.raises(errors.InvalidArgument, match="timeout"):
            there.receive(timeout=wrong)  # type: ignore[arg-type]


def test_a_waiting_receiver_is_woken(ends: tuple[tm.Channel, tm.Channel]) -> None:
    here, there = ends
    found: list[tm.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(there.receive(timeout=60)))
    thread.start()
    here.send(tm.full(2, 5, "int8", memory="shm"))
    thread.join()
    assert found[0].tolist() == [5, 5]


# ---- Paths and peers ----


def test_a_path_is_for_its_user_alone_and_goes_with_the_listener(tmp_path: Path) -> None:
    path = tmp_path / "camera"
    with tm.Channel.listen(path) as listener:
        facts = path.stat()
        assert stat.S_ISSOCK(facts.st_mode) and stat.S_IMODE(facts.st_mode) == 0o600
        with tm.Channel.connect(path) as client, listener.accept(timeout=5) as server:
            client.send(tm.full(2, 5, "int8", memory="shm"))
            assert server.receive(timeout=5).tolist() == [5, 5]
        with pytest.raises(errors.DriverError, match="bind") as raised:
            tm.Channel.listen(path)
        assert raised.value.code == errno.EADDRINUSE
    assert not path.exists()
    listener.close()
    with pytest.raises(errors.DriverError, match="connect"):
        tm.Channel.connect(path)
    with pytest.raises(errors.ChannelClosed):
        listener.accept()


def test_a_socket_whose_listener_was_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "camera"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as deserted:
        deserted.bind(str(path))
    with tm.Channel.listen(path):
        assert path.exists()
    path.write_text("a file of somebody's")
    with pytest.raises(errors.DriverError):
        tm.Channel.listen(path)
    assert path.read_text() == "a file of somebody's"


def test_nobody_connects_in_time(tmp_path: Path) -> None:
    with tm.Channel.listen(tmp_path / "camera") as listener, pytest.raises(errors.TimedOut, match="nobody"):
        listener.accept(timeout=0)


def test_a_peer_of_another_user_is_refused_on_both_sides() -> None:
    me, other = os.geteuid(), os.geteuid() + 1
    with tm.Channel.listen("@tensormem-test-peers", uids=(other,)) as listener:
        with pytest.raises(errors.ChannelRefused) as raised:
            tm.Channel.connect("@tensormem-test-peers", uids=(other,))
        assert raised.value.uid == me
        before = open_descriptors()
        with tm.Channel.connect("@tensormem-test-peers"), pytest.raises(errors.ChannelRefused):
            while True:  # the refused one from before is in the queue too
                listener.accept(timeout=5)
        assert open_descriptors() == before
    both = tm.Channel.listen("@tensormem-test-peers", uids=(me, other))
    with both, tm.Channel.connect("@tensormem-test-peers") as client, both.accept(timeout=5) as server:
        assert client.uids == {me} and server.uids == {me, other}
    with pytest.raises(errors.InvalidArgument, match="uids"):
        tm.Channel.listen("@tensormem-test-peers", uids=("root",))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["", "@", "a" * 108, "a\0b"])
def test_a_path_that_cannot_be_is_refused(path: str) -> None:
    for action in (tm.Channel.listen, tm.Channel.connect):
        with pytest.raises(errors.InvalidArgument, match="path"):
            action(path)


def test_other_sockets_are_no_channels() -> None:
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with first, second, pytest.raises(errors.InvalidArgument, match="SEQPACKET"):
        tm.Channel(first)


def test_a_channel_is_no_plain_pickle(ends: tuple[tm.Channel, tm.Channel]) -> None:
    with pytest.raises(TypeError, match="multiprocessing"):
        pickle.dumps(ends[0])


# ---- Hostile peers ----


def say(peer: socket.socket, message: bytes, *descriptors: int) -> None:
    carried = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    peer.sendmsg([message], carried)


def good_message() -> tuple[bytes, int]:
    tensor = tm.full((4, 6), 3, "int32", memory="shm")
    return describe_tensor(tensor, False), tensor.clone_fd()


def test_messages_with_the_wrong_descriptors_are_refused_and_all_are_closed(
    raw: tuple[socket.socket, tm.Channel],
) -> None:
    peer, channel = raw
    message, fd = good_message()
    before = open_descriptors()
    for descriptors in ((), (fd, fd), (fd,) * 5, (fd,) * 60):
        say(peer, message, *descriptors)
        with pytest.raises(errors.MalformedMessage, match="descriptors"):
            channel.receive(timeout=5)
        assert open_descriptors() == before
    say(peer, message, fd)
    assert channel.receive(timeout=5).tolist() == [[3] * 6] * 4  # the channel is as good as before
    os.close(fd)


def test_short_long_and_strange_messages_are_refused_and_all_descriptors_are_closed(
    raw: tuple[socket.socket, tm.Channel],
) -> None:
    peer, channel = raw
    message, fd = good_message()
    before = open_descriptors()
    strange = [message[:-1], message + b"\0", message[:39], b"x", b"\0" * 40, message * 100, os.urandom(500)]
    for text in strange:
        say(peer, text, fd)
        with pytest.raises(errors.MalformedMessage):
            channel.receive(timeout=5)
        assert open_descriptors() == before
    say(peer, b"", fd)
    with pytest.raises(errors.MalformedMessage):
        channel.receive(timeout=5)
    assert open_descriptors() == before
    os.close(fd)


def test_descriptors_that_are_no_shared_memory_are_refused(raw: tuple[socket.socket, tm.Channel]) -> None:
    peer, channel = raw
    message, fd = good_message()
    os.close(fd)
    small = os.memfd_create("small", os.MFD_ALLOW_SEALING)
    os.ftruncate(small, 8)
    unsealed = os.memfd_create("unsealed")
    os.ftruncate(unsealed, 1 << 20)
    null = os.open("/dev/null", os.O_RDWR)
    pipe = os.pipe()
    before = open_descriptors()
    for wrong in (small, unsealed, null, *pipe, peer.fileno()):
        say(peer, message, wrong)
        with pytest.raises(errors.TensormemError):
            channel.receive(timeout=5)
        assert open_descriptors() == before
    for each in (small, unsealed, null, *pipe):
        os.close(each)


def test_a_process_that_can_have_no_more_descriptors_says_so_and_goes_on(raw: tuple[socket.socket, tm.Channel]) -> None:
    peer, channel = raw
    message, fd = good_message()
    say(peer, message, fd)
    say(peer, message, fd)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 3, hard))
    try:
        held = []
        try:
            while True:
                held.append(os.dup(fd))
        except OSError:
            pass
        with pytest.raises(errors.MalformedMessage, match="no more"):
            channel.receive(timeout=5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in held:
            os.close(each)
    assert channel.receive(timeout=5).shape == (4, 6)
    os.close(fd)


def test_random_bytes_never_pass_and_leak_nothing(raw: tuple[socket.socket, tm.Channel]) -> None:
    peer, channel = raw
    message, fd = good_message()
    before = open_descriptors()
    dice = random.Random(7)
    passed = 0
    for _ in range(2000):
        text = bytearray(message)
        for _ in range(dice.randrange(1, 5)):
            text[dice.randrange(len(text))] = dice.choice((0, 1, 255, dice.randrange(256)))
        say(peer, bytes(text), *[fd] * dice.choice((1, 1, 1, 0, 2)))
        try:
            seen = channel.receive(timeout=5)
            if seen.size:  # both ends of it can be read
                assert isinstance(seen[(0,) * seen.ndim].item() + seen[(-1,) * seen.ndim].item(), int)
            passed += 1
            seen.close()
        except errors.TensormemError:
            pass
    assert open_descriptors() == before
    assert passed < 1500
    os.close(fd)


@given(st.binary(max_size=MAX_MESSAGE_BYTES + 8))
def test_the_parser_takes_any_bytes(data: bytes) -> None:
    with pytest.raises(errors.MalformedMessage) as raised:
        parse_message(data)
    assert 0 <= raised.value.position <= max(len(data), 40)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4, max_size=4),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)
def test_no_numbers_pass_that_reach_outside_the_memory(numbers: list[int], offset: int, capacity: int) -> None:
    head = b"tmshare\0" + b"\1\0\1\0" + bytes(4) + bytes([2, 32, 1, 0]) + (2).to_bytes(4, "little")
    rest = b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)
    message = head + offset.to_bytes(8, "little") + capacity.to_bytes(8, "little") + rest
    try:
        facts = parse_message(message)
    except errors.MalformedMessage:
        return
    (rows, columns), (down, right) = facts.shape, facts.strides
    if rows and columns:
        corners = [y * down + x * right for y in (0, rows - 1) for x in (0, columns - 1)]
        assert offset + 4 * min(corners) >= 0 and offset + 4 * max(corners) + 4 <= capacity
