"""A camera pipeline on Ray: a camera and a detector on one node, a recorder on another.

The camera fills frames of shared memory. The detector, on the same node, gets each by descriptor: the very bytes, not a
copy. The recorder, on the other node, gets every fifth as Ray carries it. Run `python examples/ray_camera_pipeline.py`;
it starts a cluster of two nodes on this machine, and ends with 1 if a frame was not what it should be.
"""

import argparse
import logging
import sys
from typing import Any

from camera import scene
from loopback.ray_nodes import LEFT, RIGHT, two_nodes  # before ray, which it sets up

import ray  # isort: skip

import tensormem as tm
from tensormem.distributed.ray import register_transport, share, transport_counts

register_transport()


@ray.remote(num_cpus=0)
class Camera:
    """Fills a few frames of shared memory in turn."""

    def __init__(self, frames: int) -> None:
        self.frames = [tm.empty(scene.SHAPE, "uint8", memory="shm") for _ in range(frames)]

    @ray.method(tensor_transport="tensormem")  # type: ignore[untyped-decorator]
    def film(self, number: int) -> dict[str, Any]:
        """The next frame, for others to read."""
        frame = self.frames[number % len(self.frames)]
        with frame.map("w") as mapped, memoryview(mapped) as pixels:
            scene.paint(pixels.cast("B"), number)
        return {"number": number, "frame": share(frame, readonly=True)}


@ray.remote(num_cpus=0, enable_tensor_transport=True)  # which only receivers have to say
class Watcher:
    """Finds the square in each frame that it is given, and keeps count."""

    def __init__(self) -> None:
        self.frames = self.wrong = 0

    def look(self, message: dict[str, Any]) -> int:
        """One frame; gives its number."""
        with message["frame"].map("r") as mapped, memoryview(mapped) as pixels:
            found = scene.find(pixels.cast("B"))
        self.frames += 1
        self.wrong += found != scene.place_of(message["number"])
        number: int = message["number"]
        return number

    def account(self) -> dict[str, int]:
        """What it saw, and how it came."""
        return {"frames": self.frames, "wrong": self.wrong, **transport_counts()}


def start(kind: Any, node: dict[str, float], *arguments: Any) -> Any:
    """An actor on one of the two nodes."""
    return kind.options(resources=node).remote(*arguments)


def film(frames: int) -> dict[str, dict[str, int]]:
    """Run the pipeline; a frame is filled again when all who look at it are done with it."""
    camera = start(Camera, LEFT, 4)
    watchers = {"detector": start(Watcher, LEFT), "recorder": start(Watcher, RIGHT)}
    looking: list[list[Any]] = []
    for number in range(frames):
        if len(looking) == 4:
            ray.get(looking.pop(0), timeout=100)
        message = camera.film.remote(number)
        wanted = ["detector"] if number % 5 else list(watchers)
        looking.append([watchers[who].look.remote(message) for who in wanted])
    ray.get([each for group in looking for each in group], timeout=100)
    return {who: ray.get(watcher.account.remote(), timeout=100) for who, watcher in watchers.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=60)
    frames = parser.parse_args().frames
    logging.getLogger("ray").setLevel(logging.ERROR)
    with two_nodes():
        accounts = film(frames)
    mebibytes = scene.HEIGHT * scene.PITCH / 2**20
    print(f"{frames} frames of {mebibytes:.1f} MiB; the camera and the detector share a node, the recorder has its own")
    print(f"{'who':10}{'frames':>8}{'by descriptor':>15}{'through store':>15}{'MiB copied':>12}")
    for who, account in accounts.items():
        # Through the store: once into that of the camera's node, and once to the other node.
        copied = 2 * account["object_store"] * mebibytes
        counts = f"{account['frames']:8}{account['descriptor']:15}{account['object_store']:15}"
        print(f"{who:10}{counts}{copied:12.0f}")
    wrong = sum(account["wrong"] for account in accounts.values())
    print(f"{wrong} frames were wrong." if wrong else "Every frame was what it should be.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
