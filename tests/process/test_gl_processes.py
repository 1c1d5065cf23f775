"""OpenGL at the ends of processes: exits, forks and destroyed contexts never crash, hang or complain."""

from pathlib import Path

import pytest

from support.opengl import needs_opengl
from support.python_processes import check_python

pytestmark = needs_opengl
TESTS = str(Path(__file__).parents[1])

START = """
import ctypes, os, sys, threading
from tensormem import errors
from tensormem.gl import GlContext, PixelBuffer, Texture, why_not
"""


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("mapped", [True, False])
def test_an_interpreter_ends_well_with_live_buffers(persistent: bool, mapped: bool) -> None:
    check_python(
        START
        + f"""
context = GlContext.default()
buffer = PixelBuffer(4096, context, persistent={persistent})
texture = Texture(4, 4)
if {mapped}:
    ctypes.memset(buffer.begin_access("w"), 1, 4096)
class Late:
    def __del__(self, buffer=buffer):
        if {mapped}:
            buffer.end_access("w")
        buffer.release()
sys.modules["late"] = Late()
"""
    )


def test_an_interpreter_ends_well_while_threads_use_a_context() -> None:
    check_python(
        START
        + """
context = GlContext()
def work():
    try:
        while True:
            PixelBuffer(64, context, persistent=False).release()
    except errors.PboDisconnected:
        pass
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
context.finish()
"""
    )


def test_a_context_closed_under_a_map_leaves_its_memory_to_the_end() -> None:
    check_python(
        START
        + """
context = GlContext()
buffers = [PixelBuffer(1 << 20, context, persistent=persistent) for persistent in (True, False)]
addresses = [buffer.begin_access("rw") for buffer in buffers]
context.close()
for address in addresses:
    ctypes.memset(address, 7, 1 << 20)
"""
    )


def test_a_forked_child_is_told_that_the_context_is_not_its_own_and_both_end_well() -> None:
    printed = check_python(
        START
        + """
context = GlContext()
buffers = [PixelBuffer(64, context, persistent=persistent) for persistent in (True, False)]
buffers[1].begin_access("r")
child = os.fork()
if child == 0:
    for buffer in buffers:
        try:
            buffer.begin_access("r")
        except errors.PboDisconnected as gone:
            print(gone.reason, flush=True)
        buffer.end_access("r")
        buffer.release()
    assert "fork" in why_not() and context.closed
    try:
        GlContext.default()
    except errors.DriverUnavailable:
        pass
    else:
        raise SystemExit(3)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
buffers[1].end_access("r")
ctypes.memset(buffers[1].begin_access("w"), 1, 64)
"""
    )
    assert printed.splitlines() == ["the context belongs to the process that this one was forked from"] * 2


def test_a_forked_child_that_ends_by_itself_does_not_hang() -> None:
    check_python(
        START
        + """
context = GlContext()
buffer = PixelBuffer(64, context, persistent=True)
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    )


def test_a_display_that_somebody_terminates_does_not_crash_what_is_alive() -> None:
    check_python(
        START
        + """
from tensormem.gl import library
from tensormem.gl.display import display
context = GlContext()
buffer = PixelBuffer(64, context, persistent=False)
egl = ctypes.CDLL("libEGL.so.1")
egl.eglTerminate.argtypes = [ctypes.c_void_p]
assert egl.eglTerminate(display().handle)
ctypes.memset(buffer.begin_access("w"), 1, 64)
buffer.end_access("w")
buffer.release()
context.close()
GlContext().finish()
"""
    )


@pytest.mark.parametrize("end", ["foreign.destroy()", "EGL.eglTerminate(foreign.display); foreign.release_current()"])
def test_arrays_outlive_a_callers_context_that_he_destroys_or_terminates(end: str) -> None:
    printed = check_python(
        START
        + f"""
sys.path.insert(0, {TESTS!r})
from support.opengl import ForeignContext
from OpenGL import EGL
import tensormem as tm
foreign, context = ForeignContext(), GlContext.current()
tensors = [
    tm.Tensor(tm.memories.allocate(1 << 22, "pbo", context=context, persistent=persistent), "uint8", 1 << 22)
    for persistent in (True, False)
]
arrays = [tensor.numpy() for tensor in tensors]
{end}
for array in arrays:
    array[:] = 3
for tensor in tensors:
    try:
        tensor.map("r")
    except errors.PboDisconnected as gone:
        print(gone.reason)
"""
    )
    assert printed.splitlines() == ["whoever made the context destroyed it"] * 2
