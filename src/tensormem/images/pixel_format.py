"""Owns: `PixelFormat`, how the pixels of an image are laid out in memory, and its FourCC codes.

Must not know: images, memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from tensormem import errors
from tensormem.dtypes import dtype as find_dtype

__all__ = ["PixelFormat", "PlanePattern"]


@dataclass(frozen=True)
class PlanePattern:
    """One plane of a format: how many columns and rows of the image share a sample, and the channels of a sample.

    Where columns or rows do not divide, the last sample stands for fewer pixels: sizes are rounded up.

    >>> PlanePattern("uv", columns=2, rows=2, channels=2).shape(5, 3)
    (2, 3, 2)
    """

    name: str
    columns: int = 1
    rows: int = 1
    channels: int = 1
    pitch_divisor: int = 1
    """How often the distance of its rows goes into the image's."""

    def shape(self, width: int, height: int) -> tuple[int, ...]:
        """(rows, columns, channels) of the plane; without the last where there is one channel."""
        size = -(-height // self.rows), -(-width // self.columns)
        return size if self.channels == 1 else (*size, self.channels)


@dataclass(frozen=True)
class PixelFormat:
    """How pixels lie in memory, byte by byte: `rgb` is red, green, blue at rising addresses.

    `fourcc` is the code of V4L2, which cameras and codecs use; `drm_fourcc` that of the DRM, which displays, EGL and
    DMA-BUF importers use. They differ: the DRM names channels from the highest bit of a little-endian word down.
    Planar RGB and most formats of floating-point numbers have neither.

    >>> PixelFormat.parse("nv12").fourcc, PixelFormat.from_fourcc("RGB3"), PixelFormat.RGB.drm_fourcc
    ('NV12', tm.PixelFormat('rgb'), 'BG24')
    """

    name: str
    planes: tuple[PlanePattern, ...]
    fourcc: str | None
    drm_fourcc: str | None
    dtype: str = "uint8"
    width_multiple: int = 1

    RGB: ClassVar[PixelFormat]
    RGBA: ClassVar[PixelFormat]
    BGR: ClassVar[PixelFormat]
    BGRA: ClassVar[PixelFormat]
    GREY: ClassVar[PixelFormat]
    GREY16: ClassVar[PixelFormat]
    YUYV: ClassVar[PixelFormat]
    UYVY: ClassVar[PixelFormat]
    NV12: ClassVar[PixelFormat]
    NV16: ClassVar[PixelFormat]
    I420: ClassVar[PixelFormat]
    PLANAR_RGB: ClassVar[PixelFormat]
    GREY_F32: ClassVar[PixelFormat]
    RGB_F32: ClassVar[PixelFormat]
    RGBA_F16: ClassVar[PixelFormat]
    RGBA_F32: ClassVar[PixelFormat]
    PLANAR_RGB_F32: ClassVar[PixelFormat]

    @classmethod
    def parse(cls, text: PixelFormat | str) -> PixelFormat:
        """The format of this name, exactly; `InvalidPixelFormat` otherwise."""
        if isinstance(text, PixelFormat):
            return text
        try:
            return _BY_NAME[text]
        except (KeyError, TypeError):
            raise errors.InvalidPixelFormat(text) from None

    @classmethod
    def from_fourcc(cls, code: str | int) -> PixelFormat:
        """The format of a V4L2 code: four characters, or the number made of them."""
        return _find(_BY_FOURCC, code, "V4L2")

    @classmethod
    def from_drm_fourcc(cls, code: str | int) -> PixelFormat:
        """The format of a DRM code: four characters, or the number made of them."""
        return _find(_BY_DRM_FOURCC, code, "DRM")

    @property
    def fourcc_number(self) -> int | None:
        """The V4L2 code as drivers take it."""
        return _number(self.fourcc)

    @property
    def drm_fourcc_number(self) -> int | None:
        """The DRM code as drivers take it."""
        return _number(self.drm_fourcc)

    @property
    def itemsize(self) -> int:
        """Bytes of one channel of a sample."""
        return find_dtype(self.dtype).itemsize

    @property
    def pitch_divisor(self) -> int:
        """What the distance of rows is a multiple of, because planes have a part of it."""
        return max(plane.pitch_divisor for plane in self.planes)

    @property
    def is_uniform(self) -> bool:
        """Whether all planes have one shape, so that the image is one tensor."""
        return len({(plane.columns, plane.rows, plane.channels) for plane in self.planes}) == 1

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"tm.PixelFormat({self.name!r})"


_Y: Final = PlanePattern("y")
PixelFormat.RGB = PixelFormat("rgb", (PlanePattern("rgb", channels=3),), "RGB3", "BG24")
PixelFormat.RGBA = PixelFormat("rgba", (PlanePattern("rgba", channels=4),), "AB24", "AB24")
PixelFormat.BGR = PixelFormat("bgr", (PlanePattern("bgr", channels=3),), "BGR3", "RG24")
PixelFormat.BGRA = PixelFormat("bgra", (PlanePattern("bgra", channels=4),), "AR24", "AR24")
PixelFormat.GREY = PixelFormat("grey", (_Y,), "GREY", "R8  ")
PixelFormat.GREY16 = PixelFormat("grey16", (_Y,), "Y16 ", "R16 ", "uint16")
# Two pixels are four bytes: luma, blue difference, luma, red difference.
PixelFormat.YUYV = PixelFormat("yuyv", (PlanePattern("yuyv", channels=2),), "YUYV", "YUYV", width_multiple=2)
PixelFormat.UYVY = PixelFormat("uyvy", (PlanePattern("uyvy", channels=2),), "UYVY", "UYVY", width_multiple=2)
PixelFormat.NV12 = PixelFormat("nv12", (_Y, PlanePattern("uv", 2, 2, 2)), "NV12", "NV12")
PixelFormat.NV16 = PixelFormat("nv16", (_Y, PlanePattern("uv", 2, 1, 2)), "NV16", "NV16")
# Rows of the differences are half as far apart as those of the luma.
PixelFormat.I420 = PixelFormat(
    "i420", (_Y, *(PlanePattern(name, 2, 2, pitch_divisor=2) for name in "uv")), "YU12", "YU12"
)
_PLANES: Final = tuple(PlanePattern(name) for name in "rgb")
PixelFormat.PLANAR_RGB = PixelFormat("planar_rgb", _PLANES, None, None)
PixelFormat.GREY_F32 = PixelFormat("grey_f32", (_Y,), None, None, "float32")
PixelFormat.RGB_F32 = PixelFormat("rgb_f32", PixelFormat.RGB.planes, None, None, "float32")
PixelFormat.RGBA_F16 = PixelFormat("rgba_f16", PixelFormat.RGBA.planes, None, "AB4H", "float16")
PixelFormat.RGBA_F32 = PixelFormat("rgba_f32", PixelFormat.RGBA.planes, None, None, "float32")
PixelFormat.PLANAR_RGB_F32 = PixelFormat("planar_rgb_f32", _PLANES, None, None, "float32")

_ALL: Final = (
    PixelFormat.RGB,
    PixelFormat.RGBA,
    PixelFormat.BGR,
    PixelFormat.BGRA,
    PixelFormat.GREY,
    PixelFormat.GREY16,
    PixelFormat.YUYV,
    PixelFormat.UYVY,
    PixelFormat.NV12,
    PixelFormat.NV16,
    PixelFormat.I420,
    PixelFormat.PLANAR_RGB,
    PixelFormat.GREY_F32,
    PixelFormat.RGB_F32,
    PixelFormat.RGBA_F16,
    PixelFormat.RGBA_F32,
    PixelFormat.PLANAR_RGB_F32,
)
# As V4L2 calls i420, which is how people find it.
_BY_NAME: Final = {each.name: each for each in _ALL} | {"yu12": PixelFormat.I420}
# Y800 is what older software calls GREY.
_BY_FOURCC: Final = {each.fourcc: each for each in _ALL if each.fourcc} | {"Y800": PixelFormat.GREY}
_BY_DRM_FOURCC: Final = {each.drm_fourcc: each for each in _ALL if each.drm_fourcc}


def _number(code: str | None) -> int | None:
    return None if code is None else int.from_bytes(code.encode("ascii"), "little")


def _find(codes: dict[str, PixelFormat], code: str | int, family: str) -> PixelFormat:
    text: object = code
    if isinstance(code, int) and not isinstance(code, bool) and 0 <= code < 1 << 32:
        text = code.to_bytes(4, "little").decode("latin-1")
    found = codes.get(text) if isinstance(text, str) else None
    if found is None:
        raise errors.InvalidPixelFormat(text, what=f"as a code of {family}")
    return found
