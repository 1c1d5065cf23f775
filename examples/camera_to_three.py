"""One camera, three who look: a tracker and a model in processes of their own, and an OpenGL texture.

The camera writes each 1080p frame once, into shared memory; everybody reads those bytes. It is a part of `make demo`;
alone: `python examples/camera_to_three.py --frames 300`. It ends with 1 if a frame was not what it should be.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

import tensormem as tm
from camera import scene
from camera.account import Account, table
from camera.watchers import LOOKS, film, watch
from tensormem.memories import is_available

SPAWN = multiprocessing.get_context("spawn")
TIME_LIMIT = 120.0


def answer_of(connection: Connection) -> Account:
    if not connection.poll(TIME_LIMIT):
        raise TimeoutError("a process does not answer")
    answer = connection.recv()
    assert isinstance(answer, Account)
    return answer


def start(ring: tm.FrameRing, frames: int, rate: float) -> list[Connection]:
    """The readers, and when they are there, the camera; where each will answer."""
    watching = []
    for who in LOOKS:
        here, there = SPAWN.Pipe()
        mode = "every" if who == "tracker" else "latest"
        SPAWN.Process(target=watch, args=(ring.as_readonly(mode), who, there), daemon=True).start()
        watching.append(here)
    for each in watching:
        if not each.poll(TIME_LIMIT) or each.recv() != "ready":
            raise TimeoutError("a reader does not start")
    here, there = SPAWN.Pipe()
    SPAWN.Process(target=film, args=(ring, frames, rate, there), daemon=True).start()
    return [here, *watching]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=90)
    parser.add_argument("--rate", type=float, default=30.0, help="frames a second")
    given = parser.parse_args(arguments)
    opengl = is_available("pbo")
    print(f"A camera of {scene.WIDTH} x {scene.HEIGHT}, {given.rate:g} frames a second, and those who look at it")
    ring = tm.FrameRing(4, scene.SHAPE, "uint8", tag="camera")
    here = ring.as_readonly()
    answers = start(ring, given.frames, given.rate)
    accounts = []
    if opengl:
        from camera.screen import show

        accounts = [show(here)]
    accounts = [*map(answer_of, answers), *accounts]
    print(table(accounts))
    if not opengl:
        print(f"skipped: the texture, because there is no OpenGL here: {opengl.reason}")
    wrong = sum(account.wrong for account in accounts)
    idle = [account.who for account in accounts if account.frames == 0]
    print("Every frame was what it should be." if not wrong else f"NOT TRUE: {wrong} frames were not whole")
    if idle:
        print(f"NOT TRUE: {', '.join(idle)} saw no frame")
    return 1 if wrong or idle else 0


if __name__ == "__main__":
    sys.exit(main())
