"""Images in DMA-BUFs: rows where hardware can read them, and the same picture back."""

import pytest

import tensormem as tm

FORMATS = ["rgb", "rgba", "bgra", "grey", "grey16", "yuyv", "nv12", "nv16", "planar_rgb"]


@pytest.mark.parametrize("format", FORMATS)
def test_rows_are_aligned_and_the_picture_comes_back(format: str) -> None:
    picture = tm.image(100, 7, format, "dma")
    assert picture.pitch % 64 == 0 and picture.storage.memory == "dma"
    sent = bytearray(number % 251 for number in range(picture.layout.flat_nbytes))
    picture.copy_from_flat(tm.from_buffer(sent))
    assert bytes(memoryview(picture.copy_to_flat())) == sent
    assert picture.storage.unplanned_accesses == 0


def test_a_smaller_picture_takes_the_place_of_a_bigger_one() -> None:
    picture = tm.image(640, 48, "rgba", "dma")
    assert picture.configure_image(100, 20, "rgb").pitch == 320
    with pytest.raises(tm.errors.InsufficientCapacity):
        picture.configure_image(641, 48, "rgba")
