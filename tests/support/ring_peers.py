"""Owns: what other processes do with frame rings and channels. Here, because a spawned process imports it by name."""

import os
from collections.abc import Callable
from multiprocessing.connection import Connection

import tensormem as tm


def write_frames(ring: tm.FrameRing, count: int) -> None:
    """Frames of their own numbers, and a word at the end."""
    with ring:
        for number in range(1, count + 1):
            with ring.write(timeout=100) as frame:
                frame.tensor.fill_(number % 100)


def read_frames(ring: tm.FrameRing, connection: Connection) -> None:
    """Tells the numbers of all frames, and whether each was whole; joined before it says so."""
    ring.attach_reader()
    connection.send("ready")
    seen = [(frame.number, set(frame.numpy().ravel().tolist()) == {frame.number % 100}) for frame in ring]
    connection.send((seen, ring.readonly, str(ring.mode)))


def answer_tensors(channel: tm.Channel) -> None:
    """Adds one to every tensor that comes, and sends it back."""
    with channel:
        try:
            while True:
                tensor = channel.receive(timeout=100)
                tensor.numpy()[...] += 1
                channel.send(tensor)
        except tm.errors.ChannelClosed:
            pass


def forked(body: Callable[[], object]) -> int:
    """The pid of a child that does `body` and then ends, whatever comes of it."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(0)
    return pid
