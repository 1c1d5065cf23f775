"""Descriptors over a Unix socket, to another process and back; and one that is killed leaves nothing behind."""

import os
import pickle
import signal
import socket
import subprocess
import sys
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import tensormem as tm
from tensormem.distributed.delivery import Delivery, take
from tensormem.distributed.handover import HandOverServer
from tensormem.memories import dma
from vm.guest.kernel_view import live_buffers, open_descriptors

PEER = Path(__file__).with_name("peer.py")


def test_two_processes_share_both_ways_and_a_killed_one_leaves_nothing() -> None:
    live, fds = live_buffers(), open_descriptors()
    frame = tm.Tensor(dma.allocate(4096, heap="udmabuf"), "uint8", 4096)
    frame[5:10].copy_(tm.from_buffer(b"hello"))
    ours, theirs = socket.socketpair()
    with subprocess.Popen([sys.executable, "-S", PEER, str(theirs.fileno())], pass_fds=[theirs.fileno()]) as peer:
        theirs.close()
        fd = frame.storage.owner.export_fd()
        socket.send_fds(ours, [b"take this"], [fd])
        os.close(fd)
        message, (back,), _, _ = socket.recv_fds(ours, 16, 1)
        given = dma.from_fd(back)
        os.close(back)
        assert message == b"filled" and bytes(frame[:10].tolist()) == b"hellohello"
        assert live_buffers() == live + 2
        peer.send_signal(signal.SIGKILL)
    ours.close()
    assert peer.returncode == -signal.SIGKILL
    assert given.owner.name == "of the peer" and bytes(tm.Tensor(given, "uint8", 4).tolist()) == b"back"
    assert live_buffers() == live + 2
    given.close()
    frame.close()
    assert (live_buffers(), open_descriptors()) == (live, fds)


def test_a_descriptor_of_unknown_kind_becomes_a_tensor_of_dma_memory() -> None:
    frame = tm.full((4, 5), 7, "int16", memory="dma")
    fd = frame.clone_fd()
    again = tm.from_fd(fd, "int16", (4, 5))
    reading = tm.from_fd(fd, "int16", (2, 5), strides=(10, 1), readonly=True)
    os.close(fd)
    assert again.memory == "dma" and again.aliases(frame) and reading.readonly
    again.fill_(9)
    assert reading.tolist() == [[9] * 5] * 2 and frame.tolist() == [[9] * 5] * 4


def test_multiprocessing_hands_over_the_memory_and_not_a_copy() -> None:
    frame = tm.full(1000, 3, "uint8", memory="dma")
    fds = open_descriptors()
    there = pickle.loads(ForkingPickler.dumps(frame[10:20]))
    assert there.memory == "dma" and there.aliases(frame) and there.tolist() == [3] * 10
    there.fill_(4)
    assert frame[9:12].tolist() == [3, 4, 4]
    del there
    resource_sharer.stop()
    assert open_descriptors() == fds


def test_a_server_hands_over_dma_memory_both_ways_and_keeps_nothing() -> None:
    live, fds = live_buffers(), open_descriptors()
    frame = tm.full((4, 5), 7, "int16", memory="dma")
    with HandOverServer() as server, Delivery(server.address) as delivery:
        server.offer("frame", [frame[::2], frame.as_readonly()])
        taken, reading = take(server.address, "frame", 2)
        assert taken.memory == "dma" and taken.aliases(frame) and reading.readonly
        taken.fill_(9)
        assert frame.tolist() == [[9] * 5, [7] * 5] * 2
        token = delivery.bring(frame)
        assert token is not None
        brought = server.collect(token)
        assert brought is not None and brought.aliases(frame)
        server.withdraw("frame")
        for each in (taken, reading, brought, frame):
            each.close()
    assert (live_buffers(), open_descriptors()) == (live, fds)
