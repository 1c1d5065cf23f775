"""Images: layouts against a naive model of every byte, round trips in every format, size, pitch and kind of memory."""

import os
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensormem as tm
from support.opengl import needs_opengl
from tensormem import errors
from tensormem.images import ImageLayout
from tensormem.images.description import format_description, parse_description

# Of formats whose pixels lie together, the bytes of one.
PACKED = {"rgb": 3, "rgba": 4, "bgr": 3, "bgra": 4, "grey": 1, "grey16": 2, "yuyv": 2, "uyvy": 2}
PACKED |= {"grey_f32": 4, "rgb_f32": 12, "rgba_f32": 16, "rgba_f16": 8}
PLANAR = {"planar_rgb": 1, "planar_rgb_f32": 4}
FORMATS = [*PACKED, *PLANAR, "nv12", "nv16", "i420"]
every_format = pytest.mark.parametrize("format", FORMATS)
sides = st.integers(1, 13)


def naive_bytes(width: int, height: int, format: str, pitch: int) -> Iterator[int]:
    """The place of every byte of a picture, plane by plane, row by row: what each format's description says."""

    def rows(start: int, count: int, nbytes: int, distance: int = pitch) -> Iterator[int]:
        for row in range(count):
            for byte in range(nbytes):
                yield start + row * distance + byte

    chroma_width = 2 * ((width + 1) // 2)
    if format in ("nv12", "nv16"):
        yield from rows(0, height, width)
        yield from rows(height * pitch, height if format == "nv16" else (height + 1) // 2, chroma_width)
    elif format == "i420":
        yield from rows(0, height, width)
        chroma_height = (height + 1) // 2
        for plane in range(2):
            start = height * pitch + plane * chroma_height * (pitch // 2)
            yield from rows(start, chroma_height, chroma_width // 2, pitch // 2)
    elif format in PLANAR:
        for plane in range(3):
            yield from rows(plane * height * pitch, height, width * PLANAR[format])
    else:
        yield from rows(0, height, width * PACKED[format])


def least_pitch(width: int, format: str) -> int:
    per_pixel = (PACKED | PLANAR).get(format, 1)
    return width + width % 2 if format in ("nv12", "nv16", "i420") else width * per_pixel


@given(format=st.sampled_from(FORMATS), width=sides, height=sides, gap=st.integers(0, 9), before=st.integers(0, 8))
def test_every_byte_is_where_the_model_has_it(format: str, width: int, height: int, gap: int, before: int) -> None:
    width += width % 2 if format in ("yuyv", "uyvy") else 0
    whole = tm.PixelFormat.parse(format).itemsize
    gap, before = gap // whole * whole, before // whole * whole
    gap += gap % 2 if format == "i420" else 0
    pitch = least_pitch(width, format) + gap
    layout = ImageLayout.make(width, height, format, pitch=pitch)
    memory = np.full(before + layout.nbytes, 255, np.uint8)
    picture = tm.Image(tm.from_numpy(memory)[before:], width, height, format, pitch=pitch)
    places = list(naive_bytes(width, height, format, pitch))
    sent = (np.arange(len(places)) % 251).astype(np.uint8)
    picture.copy_from_flat(tm.from_numpy(sent))
    expected = np.full(before + layout.nbytes, 255, np.uint8)
    expected[before + np.array(places)] = sent
    assert np.array_equal(memory, expected)
    assert np.array_equal(picture.copy_to_flat().numpy(), sent)
    planes = [plane.contiguous().numpy().reshape(-1).view(np.uint8) for plane in picture.planes]
    assert np.array_equal(np.concatenate(planes), sent)


@every_format
@pytest.mark.parametrize("memory", ["mem", "shm", "pbo"])
def test_every_format_goes_through_every_kind_of_memory(format: str, memory: str) -> None:
    there = tm.memories.is_available(memory)
    if not there:
        pytest.skip(f"images in {memory}: {there.reason}")
    picture = tm.image(1000, 7, format, memory)
    assert picture.storage.memory == memory
    sent = np.random.default_rng(5).integers(0, 256, picture.layout.flat_nbytes, dtype=np.uint8)
    picture.copy_from_flat(tm.from_numpy(sent))
    assert np.array_equal(picture.copy_to_flat().numpy(), sent)


def test_a_frame_of_shared_memory_is_the_same_picture_for_who_may_only_read_it() -> None:
    slot = 4096
    writer = tm.empty((3, slot), "uint8", memory="shm")
    fd = writer.clone_fd()
    try:
        reader = tm.from_fd(fd, "uint8", (3, slot), readonly=True)
    finally:
        os.close(fd)
    sent = np.random.default_rng(2).integers(0, 256, 30 * 20 * 3 // 2, dtype=np.uint8)
    tm.Image(writer[1], 30, 20, "nv12", pitch=64).copy_from_flat(tm.from_numpy(sent))
    seen = tm.Image(reader[1], 30, 20, "nv12", pitch=64)
    assert np.array_equal(seen.copy_to_flat().numpy(), sent)
    assert all(plane.readonly and plane.aliases(writer) for plane in seen.planes)


def test_a_slot_of_a_frame_ring_is_a_picture_for_writer_and_reader() -> None:
    layout = ImageLayout.make(30, 20, "nv12", pitch=64)
    sent = np.random.default_rng(3).integers(0, 256, layout.flat_nbytes, dtype=np.uint8)
    with tm.FrameRing(2, layout.nbytes) as ring:
        with ring.write() as frame:
            tm.Image(frame.tensor, 30, 20, "nv12", pitch=64).copy_from_flat(tm.from_numpy(sent))
        with ring.read(timeout=5) as seen:
            picture = tm.Image(seen.tensor, 30, 20, "nv12", pitch=64)
            assert np.array_equal(picture.copy_to_flat().numpy(), sent)
            luma, chroma = (plane.numpy() for plane in picture.planes)
            assert (luma.strides, luma.flags.writeable) == ((64, 1), False)
            assert np.array_equal(luma, sent[:600].reshape(20, 30)) and luma.ctypes.data == seen.tensor.ptr
            assert np.array_equal(chroma, sent[600:].reshape(10, 15, 2))
            del luma, chroma, picture


@needs_opengl
def test_a_picture_is_copied_within_one_map() -> None:
    picture = tm.image(6, 4, "nv12", "pbo", persistent=False)
    sent = tm.full(36, 5, "uint8")
    assert picture.copy_from_flat(sent).copy_to_flat().tolist() == [5] * 36
    assert picture.storage.unplanned_accesses == 0


def test_planes_have_the_strides_that_numpy_needs() -> None:
    assert tm.image(5, 3, "rgb", pitch=16).tensor.numpy().strides == (16, 3, 1)
    assert tm.image(5, 3, "grey16", pitch=16).tensor.numpy().strides == (16, 2)
    assert tm.image(5, 3, "planar_rgb", pitch=16).tensor.numpy().strides == (48, 16, 1)
    luma, chroma = tm.image(6, 4, "nv12", pitch=16).planes
    assert (luma.numpy().strides, chroma.numpy().strides) == ((16, 1), (16, 2, 1))
    assert (luma.shape, chroma.shape, chroma.offset) == ((4, 6), (2, 3, 2), 64)


def test_planes_of_different_shapes_are_no_single_tensor() -> None:
    for format in ("nv12", "nv16", "i420"):
        with pytest.raises(errors.InvalidArgument, match=format):
            _ = tm.image(4, 4, format).tensor


def test_odd_sizes_are_rounded_up_or_refused_as_the_format_says() -> None:
    assert [plane.shape for plane in tm.image(5, 3, "nv12").planes] == [(3, 5), (2, 3, 2)]
    assert [plane.shape for plane in tm.image(5, 3, "nv16").planes] == [(3, 5), (3, 3, 2)]
    assert [plane.shape for plane in tm.image(5, 3, "i420").planes] == [(3, 5), (2, 3), (2, 3)]
    for format in ("yuyv", "uyvy"):
        with pytest.raises(errors.InvalidArgument, match="even width"):
            tm.image(5, 3, format)


def test_a_bigger_buffer_is_reused_and_what_does_not_fit_changes_nothing() -> None:
    picture = tm.image(64, 64, "rgba", pitch_alignment=64)
    before = picture.planes[0]
    assert picture.configure_image(31, 20, "rgb") is picture
    assert (picture.width, picture.height, picture.pitch) == (31, 20, 128)
    assert picture.planes[0].aliases(before) and picture.capacity_bytes == 64 * 64 * 4
    layout = picture.layout
    with pytest.raises(errors.InsufficientCapacity) as caught:
        picture.configure_image(65, 64, "rgba")
    assert (caught.value.needed, caught.value.capacity) == (320 * 64, 64 * 64 * 4)
    for wrong in ((0, 4, "rgb"), (4, 4, "rgb9"), (3, 4, "yuyv")):
        with pytest.raises(errors.InvalidArgument):
            picture.configure_image(*wrong)
    assert picture.layout is layout
    assert picture.configure_image(64, 64, "rgba").nbytes == picture.capacity_bytes


@every_format
def test_names_and_codes_lead_to_a_format_and_back(format: str) -> None:
    kind = tm.PixelFormat.parse(format)
    assert str(kind) == format and tm.PixelFormat.parse(kind) is kind
    assert pickle.loads(pickle.dumps(kind)) == kind
    if kind.fourcc is None:
        assert (format in PLANAR or "_f" in format) and kind.fourcc_number is None
        return
    assert kind.drm_fourcc is not None
    assert kind.fourcc_number is not None and kind.drm_fourcc_number is not None
    from_v4l2, from_drm = tm.PixelFormat.from_fourcc, tm.PixelFormat.from_drm_fourcc
    assert from_v4l2(kind.fourcc) is from_v4l2(kind.fourcc_number) is kind
    assert from_drm(kind.drm_fourcc) is from_drm(kind.drm_fourcc_number) is kind


def test_codes_are_those_of_the_kernel() -> None:
    # Numbers as videodev2.h and drm_fourcc.h make them.
    assert tm.PixelFormat.NV12.fourcc_number == 0x3231564E
    assert tm.PixelFormat.RGBA.drm_fourcc_number == 0x34324241
    assert tm.PixelFormat.GREY.drm_fourcc_number == 0x20203852
    assert tm.PixelFormat.from_fourcc("Y800") is tm.PixelFormat.GREY
    assert tm.PixelFormat.I420.fourcc_number == 0x32315559 and tm.PixelFormat.parse("yu12") is tm.PixelFormat.I420
    assert tm.PixelFormat.BGR.fourcc_number == 0x33524742 and tm.PixelFormat.BGR.drm_fourcc_number == 0x34324752
    assert tm.PixelFormat.from_drm_fourcc("AB4H") is tm.PixelFormat.RGBA_F16


@every_format
def test_a_layout_travels_in_every_format(format: str) -> None:
    layout = ImageLayout.make(6, 4, format)
    assert parse_description(format_description(layout)) == layout


def test_an_odd_pitch_of_i420_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="apart"):
        ImageLayout.make(5, 3, "i420", pitch=7)
    assert ImageLayout.make(5, 3, "i420", pitch_alignment=64).planes[2].pitch == 32


@pytest.mark.parametrize("code", ["XXXX", "nv12", "", 0, -1, 2**32, 3.5, None, True])
def test_an_unknown_code_is_an_error_that_names_it(code: object) -> None:
    for find in (tm.PixelFormat.from_fourcc, tm.PixelFormat.from_drm_fourcc):
        with pytest.raises(errors.InvalidPixelFormat):
            find(code)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["RGB", "nv21", "", 4, None, []])
def test_an_unknown_name_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(errors.InvalidPixelFormat) as caught:
        tm.PixelFormat.parse(text)
    assert caught.value.text == text


@pytest.mark.parametrize(("size", "options"), [((0, 4), {}), ((4, -1), {}), ((2**31, 4), {}), ((4, 4), {"pitch": 11})])
def test_sizes_and_pitches_that_cannot_be_are_refused(size: tuple[int, int], options: dict[str, int]) -> None:
    with pytest.raises(errors.InvalidArgument):
        tm.image(*size, "rgb", **options)  # type: ignore[arg-type]


def test_alignments_are_powers_of_two_and_hold_for_given_pitches() -> None:
    with pytest.raises(errors.InvalidAlignment):
        tm.image(4, 4, "rgb", pitch_alignment=3)
    with pytest.raises(errors.InvalidArgument, match="aligned"):
        tm.image(4, 4, "rgb", pitch=100, pitch_alignment=64)
    with pytest.raises(errors.InvalidArgument):
        tm.image(4, 4, "grey16", pitch=9)


def test_images_for_graphics_are_aligned_whatever_memory_there_is() -> None:
    picture = tm.image(5, 4, "rgb", use="gpu")
    assert picture.pitch == 64 and picture.storage.reason


def test_flat_copies_of_the_wrong_size_are_refused_and_change_nothing() -> None:
    picture = tm.image(4, 4, "grey").copy_from_flat(tm.full(16, 3, "uint8"))
    for wrong in (tm.zeros(15, "uint8"), tm.zeros(17, "uint8"), tm.zeros((16, 2), "uint8")[:, 0]):
        with pytest.raises(errors.InvalidSize):
            picture.copy_from_flat(wrong)
        with pytest.raises(errors.InvalidSize):
            picture.copy_to_flat(wrong)
    assert picture.copy_to_flat().tolist() == [3] * 16
    into = tm.zeros((4, 4), "uint8")
    assert picture.copy_to_flat(into) is into and into.tolist() == [[3] * 4] * 4


def test_an_image_lies_over_memory_without_gaps_and_keeps_what_is_read_only() -> None:
    with pytest.raises(errors.InvalidArgument):
        tm.Image(tm.zeros((4, 8), "uint8")[:, :4], 2, 2, "grey")
    with pytest.raises(errors.InvalidArgument):
        tm.Image(bytearray(16), 2, 2, "grey")  # type: ignore[arg-type]
    with pytest.raises(errors.InsufficientCapacity):
        tm.Image(tm.zeros(15, "uint8"), 4, 4, "grey")
    with pytest.raises(errors.InvalidArgument, match="byte 1"):
        tm.Image(tm.zeros(33, "uint8")[1:], 4, 4, "grey16")
    picture = tm.Image(tm.from_buffer(bytes(16)), 4, 4, "grey")
    assert picture.tensor.readonly
    with pytest.raises(errors.InvalidArgument, match="read-only"):
        picture.copy_from_flat(tm.zeros(16, "uint8"))


def test_closing_an_image_gives_its_memory_back() -> None:
    with tm.image(4, 4) as picture:
        plane = picture.planes[0]
    assert plane.closed
    with pytest.raises(errors.UseAfterFree):
        _ = picture.planes


@needs_opengl
def test_a_padded_picture_goes_to_a_texture() -> None:
    from tensormem.gl import Texture

    picture = tm.image(30, 10, "rgba", "pbo", pitch_alignment=64)
    sent = np.random.default_rng(1).integers(0, 256, 1200, dtype=np.uint8)
    picture.copy_from_flat(tm.from_numpy(sent))
    back = tm.image(30, 10, "rgba", "pbo")
    with Texture(30, 10) as texture:
        texture.upload(picture.tensor)
        texture.download(back.tensor)
    assert np.array_equal(back.copy_to_flat().numpy(), sent)
