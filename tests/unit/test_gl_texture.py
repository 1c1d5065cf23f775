"""Texture: what goes in comes out, by pixel buffer and by plain memory, whatever the distance of the rows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensormem as tm
from support.opengl import needs_opengl
from tensormem import errors
from tensormem.gl import GlContext, Texture, TextureFormat
from tensormem.gl.pixel_rows import PixelRows

pytestmark = needs_opengl
FORMATS = ["r8", "rg8", "rgb8", "rgba8", "bgra8", "r16", "r32f", "rgba16f", "rgba32f"]


@pytest.fixture(scope="module")
def contexts() -> dict[str, GlContext]:
    return {api: GlContext(api) for api in ("gl", "gles")}


def pixels(width: int, height: int, format: TextureFormat) -> Any:
    values = np.random.default_rng(width * 31 + height).random((height, width, format.channels)) * 200
    return values.astype(format.dtype)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_comes_back_as_it_went_in(contexts: dict[str, GlContext], format: str) -> None:
    with Texture(5, 3, format, context=contexts["gl"]) as texture:
        sent = pixels(5, 3, texture.format)
        texture.upload(tm.from_numpy(sent))
        got = texture.download(tm.zeros(sent.shape, texture.format.dtype))
        assert np.array_equal(got.numpy(), sent)
        assert texture.nbytes == sent.nbytes


@pytest.mark.parametrize("format", ["r8", "rg8", "rgba8", "rgba32f"])
def test_open_gl_es_reads_back_through_a_framebuffer(contexts: dict[str, GlContext], format: str) -> None:
    with Texture(7, 4, format, context=contexts["gles"]) as texture:
        sent = pixels(7, 4, texture.format)
        texture.upload(tm.from_numpy(sent))
        assert np.array_equal(texture.download(tm.zeros(sent.shape, texture.format.dtype)).numpy(), sent)


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 17),
    height=st.integers(1, 9),
    padding=st.integers(0, 19),
    channels=st.sampled_from([1, 2, 3, 4]),
)
def test_rows_may_lie_any_distance_apart(
    contexts: dict[str, GlContext], width: int, height: int, padding: int, channels: int
) -> None:
    row = width * channels + padding
    memory = np.arange(height * row, dtype=np.uint32).astype(np.uint8)
    shape, strides = (height, width, channels), (row, channels, 1)
    sent = np.lib.stride_tricks.as_strided(memory, shape, strides)
    with Texture(
        width, height, {1: "r8", 2: "rg8", 3: "rgb8", 4: "rgba8"}[channels], context=contexts["gl"]
    ) as texture:
        texture.upload(tm.from_numpy(sent))
        back = np.full(height * row, 77, np.uint8)
        got = np.lib.stride_tricks.as_strided(back, shape, strides)
        texture.download(tm.from_numpy(got))
    assert np.array_equal(got, sent)
    gaps = np.ones(height * row, bool)
    np.lib.stride_tricks.as_strided(gaps, shape, strides)[...] = False
    assert (back[gaps] == 77).all()


def test_what_does_not_fit_is_refused(contexts: dict[str, GlContext]) -> None:
    context = contexts["gl"]
    with Texture(4, 2, "rgba8", context=context) as texture:
        array = np.zeros((2, 4, 4), np.uint8)
        for wrong in (
            tm.zeros((4, 2, 4), "uint8"),
            tm.zeros((2, 4, 4), "int8"),
            tm.zeros((2, 4), "uint8"),
            tm.from_numpy(array[::-1]),
            tm.from_numpy(array[:, ::-1]),
            tm.from_numpy(array[:, :, ::-1]),
            tm.zeros((1, 4, 4), "uint8").broadcast_to((2, 4, 4)),
        ):
            with pytest.raises(errors.InvalidArgument):
                texture.upload(wrong)
        with pytest.raises(errors.InvalidArgument, match="read-only"):
            texture.download(tm.from_numpy(array).as_readonly())
    with pytest.raises(errors.UseAfterFree):
        texture.upload(tm.from_numpy(array))


@pytest.mark.parametrize("size", [(0, 4), (4, -1), (1 << 20, 4)])
def test_sizes_that_opengl_cannot_have_are_refused(contexts: dict[str, GlContext], size: tuple[int, int]) -> None:
    with pytest.raises(errors.InvalidArgument):
        Texture(*size, context=contexts["gl"])


def test_formats_that_are_none_or_not_there_are_refused(contexts: dict[str, GlContext]) -> None:
    with pytest.raises(errors.InvalidArgument, match="rgba9"):
        Texture(4, 4, "rgba9", context=contexts["gl"])
    with pytest.raises(errors.NotSupported):
        Texture(4, 4, "bgra8", context=contexts["gles"])


def test_a_column_of_one_texel_needs_no_pitch() -> None:
    assert PixelRows(width=3, height=1, pitch=0, texel_bytes=3).storing == (0, 1)
