"""A Video4Linux camera that captures into DMA-BUFs of ours, or lends its own: `python examples/capture.py /dev/video0`.

No byte is copied by the CPU between the driver and the tensors. It prints one line for each frame.
"""

import argparse
import sys

import tensormem as tm
from edge.v4l2 import Camera


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", nargs="?", default="/dev/video0")
    parser.add_argument("--size", default="640x480")
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--lend", action="store_true", help="use the driver's buffers (VIDIOC_EXPBUF) instead of ours")
    asked = parser.parse_args(arguments)
    width, height = map(int, asked.size.split("x"))
    with Camera(asked.device, width, height) as camera:
        print(
            f"{camera.format.fourcc} {camera.format.width}x{camera.format.height}, rows of {camera.format.pitch} bytes"
        )
        if asked.lend:
            buffers = camera.lend(4)
        else:
            buffers = [tm.empty(camera.format.nbytes, "uint8", memory="dma", tag="camera") for _ in range(4)]
            camera.use(buffers)
        camera.start()
        for _ in range(asked.frames):
            index, number = camera.read()
            with buffers[index].map("r") as pixels:  # brackets the access; the array sees the driver's bytes
                first = bytes(memoryview(pixels)[:4])
            print(f"frame {number} in buffer {index}, which begins with {first.hex()}")
            camera.put_back(index)
    return 0


if __name__ == "__main__":
    sys.exit(main())
