"""Names of DMA-BUFs, as everybody sees them in /proc and debugfs."""

from pathlib import Path

import pytest

import tensormem as tm
from tensormem import errors
from tensormem.memories import dma


def test_a_name_is_what_the_kernel_shows_for_the_buffer() -> None:
    storage = dma.allocate(64, name="left camera")
    assert storage.owner.name == "left camera"
    assert "left camera" in Path("/sys/kernel/debug/dma_buf/bufinfo").read_text()
    storage.owner.set_name("right camera")
    assert storage.owner.name == "right camera"
    assert dma.from_fd(storage.owner.export_fd()).owner.name == "right camera"


def test_names_that_cannot_be_are_refused_and_the_old_one_stays() -> None:
    storage = dma.allocate(64, name="ä" * 15)
    for wrong in ("", "x" * 32, "ä" * 16, "a\0b", "line\n", 3):
        with pytest.raises(errors.InvalidArgument):
            storage.owner.set_name(wrong)
    assert storage.owner.name == "ä" * 15


def test_a_tag_is_the_name_where_there_is_none() -> None:
    tensor = tm.empty(64, "uint8", memory="dma", tag="frames of the camera at the back door")
    assert tensor.storage.owner.name == "frames of the camera at the back door"[:31]
    assert dma.allocate(64).owner.name == ""
