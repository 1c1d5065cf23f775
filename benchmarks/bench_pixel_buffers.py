"""Question: what does it cost to reach a pixel buffer, and to bring a frame from memory into a texture?"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# PyOpenGL decides when it is imported which library it speaks to.
os.environ.setdefault("PYOPENGL_PLATFORM", "egl")

import numpy
from OpenGL import EGL, GL

import tensormem as tm
from harness import Metric, Peer, Question, Row, time_peers
from tensormem.gl import GlContext, Texture
from tensormem.memories import allocate

FRAMES = ((256, 144), (1280, 720), (1920, 1080))  # width and height of RGBA pictures
MICROSECONDS = Metric("us", "time per frame (us)")
SURFACELESS = 0x31DD


@contextmanager
def current_context() -> Iterator[None]:
    """A context of PyOpenGL's, current on this thread."""
    find = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)
    address = ctypes.cast(EGL.eglGetProcAddress(b"eglGetPlatformDisplayEXT"), ctypes.c_void_p).value
    display = ctypes.cast(find(address or 0)(SURFACELESS, None, None), EGL.EGLDisplay)
    EGL.eglInitialize(display, None, None)
    EGL.eglBindAPI(EGL.EGL_OPENGL_API)
    config, count = (EGL.EGLConfig * 1)(), EGL.EGLint()
    wanted = (EGL.EGLint * 3)(EGL.EGL_RENDERABLE_TYPE, EGL.EGL_OPENGL_BIT, EGL.EGL_NONE)
    EGL.eglChooseConfig(display, wanted, config, 1, count)
    version = (EGL.EGLint * 7)(0x3098, 4, 0x30FB, 5, 0x30FD, 1, EGL.EGL_NONE)
    context = EGL.eglCreateContext(display, config[0], EGL.EGL_NO_CONTEXT, version)
    EGL.eglMakeCurrent(display, EGL.EGL_NO_SURFACE, EGL.EGL_NO_SURFACE, context)
    try:
        yield
    finally:
        EGL.eglMakeCurrent(display, EGL.EGL_NO_SURFACE, EGL.EGL_NO_SURFACE, EGL.EGL_NO_CONTEXT)
        EGL.eglDestroyContext(display, context)


def buffer(shape: tuple[int, ...], context: GlContext, persistent: bool) -> tm.Tensor:
    nbytes = int(numpy.prod(shape))
    return tm.Tensor(allocate(nbytes, "pbo", context=context, persistent=persistent), "uint8", shape)


def maps(own: GlContext, here: GlContext, shape: tuple[int, ...]) -> list[Peer]:
    """Map for writing and unmap, without touching a byte."""
    theirs = GL.glGenBuffers(1)
    GL.glBindBuffer(GL.GL_PIXEL_UNPACK_BUFFER, theirs)
    GL.glBufferData(GL.GL_PIXEL_UNPACK_BUFFER, int(numpy.prod(shape)), None, GL.GL_DYNAMIC_DRAW)
    GL.glBindBuffer(GL.GL_PIXEL_UNPACK_BUFFER, 0)

    def by_hand() -> None:
        GL.glBindBuffer(GL.GL_PIXEL_UNPACK_BUFFER, theirs)
        GL.glMapBufferRange(GL.GL_PIXEL_UNPACK_BUFFER, 0, int(numpy.prod(shape)), GL.GL_MAP_WRITE_BIT)
        GL.glUnmapBuffer(GL.GL_PIXEL_UNPACK_BUFFER)
        GL.glBindBuffer(GL.GL_PIXEL_UNPACK_BUFFER, 0)

    return [
        Peer("map: tensormem, persistent", "t.map('w').unmap()", {"t": buffer(shape, own, True)}),
        Peer("map: tensormem, its own thread", "t.map('w').unmap()", {"t": buffer(shape, own, False)}),
        Peer("map: tensormem, caller's context", "t.map('w').unmap()", {"t": buffer(shape, here, False)}),
        Peer("map: PyOpenGL", by_hand),
    ]


def uploads(own: GlContext, here: GlContext, shape: tuple[int, ...]) -> list[Peer]:
    """Write a frame and bring it into a texture, to the end."""
    height, width, _ = shape
    frame = numpy.random.default_rng(1).integers(0, 256, shape, dtype=numpy.uint8)
    name = GL.glGenTextures(1)
    GL.glBindTexture(GL.GL_TEXTURE_2D, name)
    GL.glTexImage2D(GL.GL_TEXTURE_2D, 0, GL.GL_RGBA8, width, height, 0, GL.GL_RGBA, GL.GL_UNSIGNED_BYTE, None)

    def by_pbo(context: GlContext, persistent: bool) -> Callable[[], None]:
        tensor, texture = buffer(shape, context, persistent), Texture(width, height, "rgba8", context=context)
        source = tm.from_numpy(frame)

        def upload() -> None:
            tensor.copy_(source)
            texture.upload(tensor)
            context.finish()

        return upload

    staged = frame.copy()

    def from_client_memory() -> None:
        numpy.copyto(staged, frame)
        GL.glBindTexture(GL.GL_TEXTURE_2D, name)
        GL.glTexSubImage2D(GL.GL_TEXTURE_2D, 0, 0, 0, width, height, GL.GL_RGBA, GL.GL_UNSIGNED_BYTE, staged)
        GL.glFinish()

    return [
        Peer("frame: tensormem, persistent", by_pbo(own, True)),
        Peer("frame: tensormem, its own thread", by_pbo(own, False)),
        Peer("frame: tensormem, caller's context", by_pbo(here, True)),
        Peer("frame: PyOpenGL, from client memory", from_client_memory),
    ]


def measure(say: Callable[[str], None]) -> list[Row]:
    rows: list[Row] = []
    with current_context(), GlContext("gl") as own:
        here = GlContext.current()
        for width, height in FRAMES:
            say(f"{width} x {height}")
            shape = height, width, 4
            timings: dict[str, Any] = time_peers(maps(own, here, shape)) | time_peers(uploads(own, here, shape))
            rows += [Row(name, width * height * 4, {"us": each.median_ns / 1000}) for name, each in timings.items()]
        here.close()
    return rows


QUESTION = Question(
    name="pixel_buffers",
    title="Pixel buffers: maps, and frames into a texture",
    asks="Map for writing and unmap a pixel buffer of one RGBA frame; and write a frame, bring it into a texture and "
    "wait until it is there. Software rendering by Mesa. `its own thread` pays for handing each call to the context's "
    "thread; a persistent buffer needs no call at all to be mapped.",
    case_label="bytes of the frame",
    metrics=[MICROSECONDS],
    measure=measure,
    ours="map: tensormem, persistent",
    packages=("tensormem", "PyOpenGL", "numpy"),
)
