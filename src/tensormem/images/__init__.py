"""Owns: images: pictures in memory of any kind, described for whoever reads them.

A format says how pixels lie, a layout where planes and rows begin, an image puts a layout over memory. Reads from low
to high: pixel_format, layout, image_view, making. Must not know: what is in the pictures; nothing is converted here.
"""

from tensormem.images.image_view import Image
from tensormem.images.layout import ImageLayout, PlaneLayout
from tensormem.images.making import image
from tensormem.images.pixel_format import PixelFormat, PlanePattern
from tensormem.public_functions import explain_misspellings

__all__ = ["Image", "ImageLayout", "PixelFormat", "PlaneLayout", "PlanePattern", "image"]

explain_misspellings(globals())
