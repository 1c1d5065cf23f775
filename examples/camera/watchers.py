"""Owns: the processes: one camera that fills frames, and those who look at the same bytes.

Must not know: the table, OpenGL.
"""

import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import tensormem as tm
from camera import scene
from camera.account import Account


def film(ring: tm.FrameRing, frames: int, rate: float, answers: Connection) -> None:
    """The camera: `frames` frames, `rate` of them a second, each written once, in place."""
    account = Account("camera")
    with ring:
        ring.attach_writer()
        start = time.monotonic()
        for number in range(1, frames + 1):
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
            with ring.write() as frame:
                scene.paint(memoryview(frame.tensor).cast("B"), ring.published + 1)
            account.frames += frame.number > 0
            account.dropped += frame.number == 0
        account.seconds = time.monotonic() - start
    answers.send(account)


def watch(ring: tm.FrameRing, who: str, answers: Connection) -> None:
    """A reader: looks at frames as they come until the camera is done."""
    ring.attach_reader()
    answers.send("ready")
    account = Account(who)
    look = LOOKS[who]
    start = 0.0
    for frame in ring:
        start = start or time.monotonic()
        account.latencies.append((time.monotonic_ns() - frame.timestamp) / 1000)
        with memoryview(frame.tensor).cast("B") as pixels:
            # Shared memory seen in place: a copy would be other memory.
            account.copies += str(frame.tensor.memory) != "shm"
            account.wrong += not look(pixels, frame.number)
        account.frames += 1
        account.dropped += frame.dropped
    account.seconds = time.monotonic() - start
    answers.send(account)


def _track(pixels: memoryview, number: int) -> bool:
    return scene.find(pixels) == scene.place_of(number)


def _judge(pixels: memoryview, number: int) -> bool:
    return 60 < scene.brightness(pixels) < 70


LOOKS: dict[str, Callable[[memoryview, int], bool]] = {"tracker": _track, "model": _judge}
