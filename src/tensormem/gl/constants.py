"""Owns: the numbers of EGL and OpenGL that are used here, under the names of their specifications, and error names.

Must not know: any library that implements them.
"""

from __future__ import annotations

from typing import Final

# ---- EGL 1.5, EGL_MESA_platform_surfaceless, EGL_EXT_platform_device ----
EGL_NONE: Final = 0x3038
EGL_VENDOR: Final = 0x3053
EGL_EXTENSIONS: Final = 0x3055
EGL_OPENGL_ES_API: Final = 0x30A0
EGL_OPENGL_API: Final = 0x30A2
EGL_CONFIG_ID: Final = 0x3028
EGL_SURFACE_TYPE: Final = 0x3033
EGL_RENDERABLE_TYPE: Final = 0x3040
EGL_OPENGL_BIT: Final = 0x0008
EGL_OPENGL_ES3_BIT: Final = 0x0040
EGL_CONTEXT_CLIENT_TYPE: Final = 0x3097
EGL_CONTEXT_MAJOR_VERSION: Final = 0x3098
EGL_CONTEXT_MINOR_VERSION: Final = 0x30FB
EGL_CONTEXT_OPENGL_PROFILE_MASK: Final = 0x30FD
EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT: Final = 0x0001
EGL_PLATFORM_SURFACELESS_MESA: Final = 0x31DD
EGL_PLATFORM_DEVICE_EXT: Final = 0x313F

# ---- EGL_KHR_image_base, EGL_EXT_image_dma_buf_import ----
EGL_HEIGHT: Final = 0x3056
EGL_WIDTH: Final = 0x3057
EGL_LINUX_DMA_BUF_EXT: Final = 0x3270
EGL_LINUX_DRM_FOURCC_EXT: Final = 0x3271
EGL_DMA_BUF_PLANE0_FD_EXT: Final = 0x3272
EGL_DMA_BUF_PLANE0_OFFSET_EXT: Final = 0x3273
EGL_DMA_BUF_PLANE0_PITCH_EXT: Final = 0x3274

# ---- OpenGL 4.5 and OpenGL ES 3.2 ----
GL_NO_ERROR: Final = 0
GL_CONTEXT_LOST: Final = 0x0507
GL_VENDOR: Final = 0x1F00
GL_RENDERER: Final = 0x1F01
GL_EXTENSIONS: Final = 0x1F03
GL_MAJOR_VERSION: Final = 0x821B
GL_MINOR_VERSION: Final = 0x821C
GL_NUM_EXTENSIONS: Final = 0x821D
GL_MAX_TEXTURE_SIZE: Final = 0x0D33
GL_MIN_MAP_BUFFER_ALIGNMENT: Final = 0x90BC

GL_PIXEL_PACK_BUFFER: Final = 0x88EB
GL_PIXEL_UNPACK_BUFFER: Final = 0x88EC
GL_PIXEL_PACK_BUFFER_BINDING: Final = 0x88ED
GL_PIXEL_UNPACK_BUFFER_BINDING: Final = 0x88EF
GL_COPY_WRITE_BUFFER: Final = 0x8F37
GL_COPY_WRITE_BUFFER_BINDING: Final = 0x8F37
GL_STREAM_DRAW: Final = 0x88E0
GL_STREAM_READ: Final = 0x88E1
GL_DYNAMIC_DRAW: Final = 0x88E8
GL_MAP_READ_BIT: Final = 0x0001
GL_MAP_WRITE_BIT: Final = 0x0002
GL_MAP_PERSISTENT_BIT: Final = 0x0040
GL_MAP_COHERENT_BIT: Final = 0x0080
GL_DYNAMIC_STORAGE_BIT: Final = 0x0100

GL_TEXTURE_2D: Final = 0x0DE1
GL_TEXTURE_BINDING_2D: Final = 0x8069
GL_TEXTURE_MIN_FILTER: Final = 0x2801
GL_TEXTURE_MAG_FILTER: Final = 0x2800
GL_TEXTURE_MAX_LEVEL: Final = 0x813D
GL_NEAREST: Final = 0x2600
GL_UNPACK_ROW_LENGTH: Final = 0x0CF2
GL_UNPACK_SKIP_ROWS: Final = 0x0CF3
GL_UNPACK_SKIP_PIXELS: Final = 0x0CF4
GL_UNPACK_ALIGNMENT: Final = 0x0CF5
GL_PACK_ROW_LENGTH: Final = 0x0D02
GL_PACK_SKIP_ROWS: Final = 0x0D03
GL_PACK_SKIP_PIXELS: Final = 0x0D04
GL_PACK_ALIGNMENT: Final = 0x0D05
GL_READ_FRAMEBUFFER: Final = 0x8CA8
GL_READ_FRAMEBUFFER_BINDING: Final = 0x8CAA
GL_COLOR_ATTACHMENT0: Final = 0x8CE0
GL_FRAMEBUFFER_COMPLETE: Final = 0x8CD5

GL_UNSIGNED_BYTE: Final = 0x1401
GL_UNSIGNED_SHORT: Final = 0x1403
GL_FLOAT: Final = 0x1406
GL_HALF_FLOAT: Final = 0x140B
GL_RED: Final = 0x1903
GL_RGB: Final = 0x1907
GL_RGBA: Final = 0x1908
GL_BGRA: Final = 0x80E1
GL_RG: Final = 0x8227
GL_R8: Final = 0x8229
GL_R16: Final = 0x822A
GL_RG8: Final = 0x822B
GL_R32F: Final = 0x822E
GL_RGB8: Final = 0x8051
GL_RGBA8: Final = 0x8058
GL_RGBA32F: Final = 0x8814
GL_RGBA16F: Final = 0x881A

GL_SYNC_GPU_COMMANDS_COMPLETE: Final = 0x9117
GL_SYNC_FLUSH_COMMANDS_BIT: Final = 0x00000001
GL_ALREADY_SIGNALED: Final = 0x911A
GL_TIMEOUT_EXPIRED: Final = 0x911B
GL_CONDITION_SATISFIED: Final = 0x911C
GL_WAIT_FAILED: Final = 0x911D

GL_ERRORS: Final[dict[int, tuple[str, str]]] = {
    0x0500: ("GL_INVALID_ENUM", "a constant is not one that this call takes"),
    0x0501: ("GL_INVALID_VALUE", "a number is outside the range that this call takes"),
    0x0502: ("GL_INVALID_OPERATION", "the call is not allowed in the present state"),
    0x0503: ("GL_STACK_OVERFLOW", "a stack would overflow"),
    0x0504: ("GL_STACK_UNDERFLOW", "a stack would underflow"),
    0x0505: ("GL_OUT_OF_MEMORY", "there is not enough memory left for this call"),
    0x0506: ("GL_INVALID_FRAMEBUFFER_OPERATION", "the framebuffer is not complete"),
    GL_CONTEXT_LOST: ("GL_CONTEXT_LOST", "the graphics card was reset and the context with it"),
}

EGL_ERRORS: Final[dict[int, tuple[str, str]]] = {
    0x3000: ("EGL_SUCCESS", "no error was given"),
    0x3001: ("EGL_NOT_INITIALIZED", "the display is not initialised, or was terminated"),
    0x3002: ("EGL_BAD_ACCESS", "the context is current on another thread"),
    0x3003: ("EGL_BAD_ALLOC", "there are not enough resources"),
    0x3004: ("EGL_BAD_ATTRIBUTE", "an attribute is not known, or has a value that it cannot have"),
    0x3005: ("EGL_BAD_CONFIG", "this is no configuration of the display"),
    0x3006: ("EGL_BAD_CONTEXT", "this is no context, or it was destroyed"),
    0x3007: ("EGL_BAD_CURRENT_SURFACE", "the current surface is not valid any more"),
    0x3008: ("EGL_BAD_DISPLAY", "this is no display"),
    0x3009: ("EGL_BAD_MATCH", "the arguments do not go together"),
    0x300A: ("EGL_BAD_NATIVE_PIXMAP", "this is no pixmap"),
    0x300B: ("EGL_BAD_NATIVE_WINDOW", "this is no window"),
    0x300C: ("EGL_BAD_PARAMETER", "an argument is not valid"),
    0x300D: ("EGL_BAD_SURFACE", "this is no surface"),
    0x300E: ("EGL_CONTEXT_LOST", "the graphics card was reset and the context with it"),
}
