"""A camera of Video4Linux, the kernel's test driver vivid, captures into our DMA-BUFs and lends its own."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import capture
import tensormem as tm
from edge.v4l2 import Camera
from tensormem.memories import dma

DEVICE = Path("/dev/video0")


@pytest.fixture
def camera() -> Iterator[Camera]:
    if not DEVICE.exists():
        for module in sorted(Path("/later/vivid").iterdir()):
            subprocess.run(["insmod", module], check=False)  # some may be there already
    with Camera(str(DEVICE), 320, 180) as opened:
        yield opened


def test_a_camera_captures_into_our_memory(camera: Camera) -> None:
    assert camera.format.fourcc == "YUYV" and camera.format.pitch == camera.format.width * 2
    buffers = [tm.zeros(camera.format.nbytes, "uint8", memory="dma") for _ in range(3)]
    camera.use(buffers)
    camera.start()
    numbers = []
    for _ in range(5):
        index, number = camera.read()
        numbers.append(number)
        picture = tm.Image(buffers[index], camera.format.width, camera.format.height, "yuyv", pitch=camera.format.pitch)
        with picture.tensor.map("r") as pixels:
            assert len(set(bytes(memoryview(pixels).cast("B")))) > 4  # the driver's test picture has many colours
        camera.put_back(index)
    assert numbers == sorted(set(numbers))


def test_a_camera_lends_its_own_memory(camera: Camera) -> None:
    lent = camera.lend(2)
    assert all(each.storage.memory == "dma" and each.nbytes >= camera.format.nbytes for each in lent)
    camera.start()
    index, _ = camera.read()
    with lent[index].map("r") as pixels:
        assert any(bytes(memoryview(pixels)[:64]))
    other = lent[1 - index]
    assert not lent[index].aliases(other) and lent[index].aliases(lent[index])


def test_frames_outlive_the_camera(camera: Camera) -> None:
    lent = camera.lend(2)
    camera.start()
    index, _ = camera.read()
    camera.close()
    with lent[index].map("r") as pixels:
        assert any(bytes(memoryview(pixels)[:64]))


def test_a_buffer_that_is_too_small_is_refused_by_the_driver(camera: Camera) -> None:
    camera.use([tm.Tensor(dma.allocate(4096), "uint8", 4096) for _ in range(2)])
    with pytest.raises(OSError, match="Invalid argument"):
        camera.start()


@pytest.mark.parametrize("further", [[], ["--lend"]])
def test_the_example_captures_frames(camera: Camera, capsys: pytest.CaptureFixture[str], further: list[str]) -> None:
    camera.close()
    assert capture.main([str(DEVICE), "--size", "320x180", "--frames", "3", *further]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "YUYV 320x180, rows of 640 bytes" and len(lines) == 4
