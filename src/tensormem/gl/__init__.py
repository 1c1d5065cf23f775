"""Owns: OpenGL without a window: contexts, pixel buffers, textures and fences, as far as tensors need them.

Reads from low to high: constants, signatures, library, display, call_site, own_thread, callers_thread, calls, context,
fence, buffer, texture_format, pixel_rows, texture. Everything goes through ctypes, and nothing is opened before it is
used. Must not know: storages and kinds of memory; `tensormem.memories.pbo` makes those.
"""

from tensormem.gl.buffer import PixelBuffer
from tensormem.gl.context import GlContext
from tensormem.gl.display import why_not
from tensormem.gl.fence import GlFence
from tensormem.gl.library import GlLibrary, library
from tensormem.gl.texture import Texture
from tensormem.gl.texture_format import TextureFormat
from tensormem.public_functions import explain_misspellings

__all__ = ["GlContext", "GlFence", "GlLibrary", "PixelBuffer", "Texture", "TextureFormat", "library", "why_not"]

explain_misspellings(globals())
