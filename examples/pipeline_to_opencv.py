"""A GStreamer pipeline whose frames OpenCV works on, in memory of ours: `python examples/pipeline_to_opencv.py`.

Frames arrive as tensors over GStreamer's memory, without a copy; OpenCV writes its result into a picture in shared
memory, which another process could be looking at. It prints one line for each frame.
"""

import argparse
import sys

import cv2

import tensormem as tm
from edge.appsink import Pipeline

SOURCE = "videotestsrc num-buffers={frames} pattern=smpte ! video/x-raw,format=I420,width=320,height=240"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=5)
    parser.add_argument("--source", default=SOURCE, help="a pipeline that gives I420 of 320x240")
    asked = parser.parse_args(arguments)
    shown = tm.image(320, 240, "bgr", "shm")
    with Pipeline(f"{asked.source.format(frames=asked.frames)} ! appsink name=out sync=false") as pipeline:
        count = 0
        while (frame := pipeline.read()) is not None:
            count += 1
            picture = tm.Image(frame, 320, 240, "i420")
            rows = picture.data.reshape(360, 320).numpy()
            cv2.cvtColor(rows, cv2.COLOR_YUV2BGR_I420, shown.tensor.numpy())
            blue, green, red = (int(value) for value in shown.tensor.numpy()[10, 10])
            print(f"frame {count}: {rows.nbytes} bytes, read-only {frame.readonly}, first bar {red} {green} {blue}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
