"""Descriptors over a Unix socket, to another process and back; and one that is killed leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import tensormem as tm
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
