"""Question: how long does it take until another process reads the first byte of a 1080p frame?"""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy
import torch
import torch.multiprocessing

import tensormem as tm
from harness import Metric, Question, Row

SHAPE = (1080, 1920, 3)
ROUNDS = 5
FRAMES = 100  # of one peer in one round; the first few are left out
WARM_UP = 10
SPAWN = multiprocessing.get_context("spawn")
LATENCY = Metric("us", "notify to first byte read (us)")


def read_ring(ring: tm.FrameRing, back: Connection) -> None:
    ring.attach_reader()
    back.send(None)
    for _ in range(FRAMES):
        with ring.read() as frame:
            _ = frame.numpy()[0, 0, 0]
            back.send(time.monotonic_ns() - frame.timestamp)


def read_queue(queue: Any, back: Connection) -> None:
    back.send(None)
    for _ in range(FRAMES):
        sent, frame = queue.get()
        _ = frame[0, 0, 0]
        back.send(time.monotonic_ns() - sent)


def times_of(process: Any, here: Connection, hand_over: Callable[[], None]) -> list[float]:
    """Microseconds of each frame. The next one is handed over when the one before has arrived, so none queues up."""
    process.start()
    here.recv()
    taken = []
    for _ in range(FRAMES):
        hand_over()
        taken.append(here.recv() / 1000)
    process.join()
    return taken[WARM_UP:]


def by_ring() -> list[float]:
    here, there = SPAWN.Pipe()
    with tm.FrameRing(3, SHAPE, "uint8") as ring:

        def hand_over() -> None:
            with ring.write() as frame:
                frame.numpy()[0, 0, 0] = 1

        return times_of(SPAWN.Process(target=read_ring, args=(ring.as_readonly(), there)), here, hand_over)


def by_queue() -> list[float]:
    here, there = SPAWN.Pipe()
    queue: Any = SPAWN.Queue()
    frame = numpy.ones(SHAPE, numpy.uint8)
    process = SPAWN.Process(target=read_queue, args=(queue, there))
    return times_of(process, here, lambda: queue.put((time.monotonic_ns(), frame)))


def by_torch() -> list[float]:
    here, there = SPAWN.Pipe()
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    frame: Any = torch.ones(SHAPE, dtype=torch.uint8)
    frame.share_memory_()
    process = context.Process(target=read_queue, args=(queue, there))
    return times_of(process, here, lambda: queue.put((time.monotonic_ns(), frame)))


PEERS = {
    "tensormem.FrameRing": by_ring,
    "multiprocessing.Queue of NumPy arrays": by_queue,
    "torch.multiprocessing.Queue": by_torch,
}


def measure(say: Callable[[str], None]) -> list[Row]:
    taken: dict[str, list[float]] = {name: [] for name in PEERS}
    for turn in range(ROUNDS):
        for name, hand_over in PEERS.items():
            say(f"turn {turn + 1} of {ROUNDS}: {name}")
            taken[name] += hand_over()
    return [
        Row(name, None, {"us": statistics.median(each), "fastest_us": min(each), "slowest_us": max(each)})
        for name, each in taken.items()
    ]


QUESTION = Question(
    name="frame_hand_over",
    title="A 1080p frame for another process",
    asks="A frame of 1080 x 1920 x 3 bytes is ready; another process waits for it and reads the first byte. By "
    "the clock that both share: from the moment before the frame is published or put into the queue. PyTorch's frame "
    "is in shared memory before, as ours is; the queue of arrays has to copy it.",
    case_label="",
    metrics=[LATENCY],
    measure=measure,
    ours="tensormem.FrameRing",
    packages=("tensormem", "numpy", "torch"),
)
