"""Textures of OpenGL over DMA-BUFs: the same bytes on both sides, with Mesa's software renderer."""

import pytest

import tensormem as tm
from tensormem import errors
from tensormem.gl import GlContext
from tensormem.memories import dma
from tensormem.memories.dma.egl_image import DmaTexture, why_no_textures
from vm.guest.kernel_view import live_buffers, open_descriptors


@pytest.fixture(scope="module", autouse=True)
def _offered() -> None:
    reason = why_no_textures()
    if reason is not None:
        pytest.skip(reason)


def frame_of(heap: str, height: int = 4, width: int = 16, channels: int = 4) -> tm.Tensor:
    """An image with rows of 64 bytes or more, each byte different from its neighbours."""
    pitch = -(-width * channels // 64) * 64
    storage = dma.allocate(height * pitch, heap=heap)
    image = tm.Tensor(storage, "uint8", (height, width, channels), strides=(pitch, channels, 1))
    with storage.map("w") as mapped:
        memoryview(mapped)[:] = bytes((7 * index) % 251 for index in range(height * pitch))
    return image


@pytest.mark.parametrize("heap", ["system", "udmabuf"])
@pytest.mark.parametrize(("format", "channels"), [("rgba8", 4), ("r8", 1)])
def test_a_texture_shows_the_bytes_of_the_buffer_without_a_copy(heap: str, format: str, channels: int) -> None:
    image = frame_of(heap, channels=channels)
    with DmaTexture(image, format) as texture:
        target = tm.zeros(image.shape, "uint8")
        assert texture.download(target).tolist() == image.tolist()
        with image.map("w") as mapped:
            memoryview(mapped)[2, 3, 0] = 99
        assert texture.download(target).tolist()[2][3][0] == 99


def test_an_image_of_dma_memory_has_rows_that_can_be_imported() -> None:
    image = tm.image(5, 3, "rgba", memory="dma", heap="system", name="odd width")
    assert image.pitch == dma.row_pitch_alignment
    image.tensor.fill_(11)
    with DmaTexture(image.tensor, "rgba8") as texture:
        assert texture.download(tm.zeros((3, 5, 4), "uint8")).tolist() == image.tensor.tolist()


def test_what_opengl_writes_is_in_the_buffer() -> None:
    image = frame_of("system")
    with DmaTexture(image, "rgba8") as texture:
        texture.upload(tm.full(image.shape, 33, "uint8"))
        texture.context.finish()
        with image.map("r") as mapped:
            assert bytes(mapped) == bytes([33]) * (4 * 16 * 4)


def test_other_tensors_and_formats_are_refused() -> None:
    image = frame_of("system")
    with pytest.raises(errors.InvalidArgument, match="of mem memory"):
        DmaTexture(tm.zeros((4, 16, 4), "uint8"))
    with pytest.raises(errors.InvalidArgument):
        DmaTexture(image, "rgba32f")
    with pytest.raises(errors.InvalidArgument):
        DmaTexture(image, "r8")
    with pytest.raises(errors.InvalidArgument):
        DmaTexture(image.permute(1, 0, 2))
    with pytest.raises(errors.InvalidArgument):
        DmaTexture(image[0, 0])


def test_textures_leave_nothing_behind() -> None:
    image = frame_of("udmabuf")
    with GlContext() as context:
        DmaTexture(image, context=context).close()
        context.finish()
        live, fds = live_buffers(), open_descriptors()
        for _ in range(10):
            DmaTexture(image, context=context).close()
        context.drain()
        context.finish()
        assert (live_buffers(), open_descriptors()) == (live, fds)
