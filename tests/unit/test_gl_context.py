"""GlContext: calls run on its thread, their exceptions travel back, and its end is noticed by everybody who uses it."""

import ctypes
import gc
import threading
import weakref

import pytest

from support.opengl import ForeignContext, foreign_context, needs_opengl
from tensormem import errors
from tensormem.gl import GlContext, GlFence, GlLibrary, PixelBuffer, Texture, library, why_not
from tensormem.gl.display import candidates, display, make_context, open_display
from tensormem.gl.own_thread import OwnThread

pytestmark = needs_opengl


def in_another_thread(function: object) -> object:
    """What `function` gave or raised in a thread of its own."""
    told: list[object] = []

    def run() -> None:
        try:
            told.append(function())  # type: ignore[operator]
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return told[0]


@pytest.mark.parametrize("api", ["gl", "gles"])
def test_a_context_says_what_it_is(api: str) -> None:
    with GlContext(api) as context:
        assert context.api == api and context.version >= (3, 0)
        assert context.renderer in repr(context) and context.extensions
    assert context.closed and "closed" in repr(context)


def test_calls_of_every_thread_run_on_one_thread_that_is_not_theirs() -> None:
    with GlContext() as context:
        seen = {in_another_thread(lambda: context.run(threading.get_ident)) for _ in range(4)}
        assert seen == {context.run(threading.get_ident)} and threading.get_ident() not in seen


def test_what_a_call_raises_is_raised_by_the_caller_and_the_thread_goes_on() -> None:
    with GlContext() as context:
        with pytest.raises(ZeroDivisionError):
            context.run(lambda: 1 // 0)
        with pytest.raises(SystemExit):
            context.run(exit)
        assert context.run(int) == 0


def test_an_error_of_opengl_has_its_name_and_its_call_and_does_not_stay() -> None:
    with GlContext() as context:
        with pytest.raises(errors.DriverError) as caught:
            context.run(context.calls, "glBindBuffer", 1, 1)
        assert (caught.value.name, caught.value.call, caught.value.driver) == ("GL_INVALID_ENUM", "glBindBuffer", "gl")
        context.finish()


def test_an_error_of_egl_has_its_name() -> None:
    with pytest.raises(errors.DriverError) as caught:
        make_context(library(), display().handle, "gl", (9, 9), None)
    assert (caught.value.name, caught.value.call, caught.value.driver) == ("EGL_BAD_MATCH", "eglCreateContext", "egl")


def test_a_closed_context_refuses_everything_and_closes_once() -> None:
    context = GlContext()
    context.close()
    context.close()
    context.drain()
    for use in (context.finish, lambda: GlFence(context), lambda: Texture(4, 4, context=context)):
        with pytest.raises(errors.PboDisconnected, match="closed"):
            use()


def test_a_context_that_nobody_has_any_more_ends_its_thread() -> None:
    context = GlContext()
    thread = context.run(threading.current_thread)
    gone = weakref.ref(context)
    del context
    gc.collect()
    thread.join(60)
    assert gone() is None and not thread.is_alive()


def test_the_default_context_is_one_and_is_made_again_after_it_was_closed() -> None:
    first = GlContext.default()
    assert GlContext.default() is first
    first.close()
    assert GlContext.default() is not first and not GlContext.default().closed


def test_a_fence_is_passed_in_the_end() -> None:
    with GlContext() as context:
        fence = GlFence(context)
        fence.wait()
        assert fence.done


@pytest.mark.parametrize("api", ["GL", "vulkan", 4])
def test_an_interface_that_is_none_is_refused(api: str) -> None:
    with pytest.raises(errors.InvalidArgument):
        GlContext(api)


def test_a_library_that_is_not_there_says_what_to_install() -> None:
    with pytest.raises(errors.DriverUnavailable, match="libegl1"):
        GlLibrary("libEGL_of_nobody.so.9")
    with pytest.raises(AttributeError):
        library().glTeapot  # noqa: B018
    assert why_not() is None


def test_a_thread_that_cannot_open_its_context_says_why() -> None:
    def opening() -> None:
        raise errors.DriverUnavailable("gl", "the sky is cloudy")

    with pytest.raises(errors.DriverUnavailable, match="cloudy"):
        OwnThread("doomed", opening, lambda: None)


def test_what_is_posted_and_fails_is_told_like_the_end_of_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda what: told.append(what.exc_type))
    with GlContext() as context:
        context.site.post(lambda: 1 // 0)
        context.drain()
    assert told == [ZeroDivisionError]


def test_every_platform_without_a_screen_that_is_offered_makes_contexts() -> None:
    platforms = list(candidates(library()))
    assert platforms
    for platform, native in platforms:
        opened = open_display(library(), platform, native)
        context = make_context(library(), opened, "gl", (3, 3), None)
        assert library().eglDestroyContext(opened, context)


# ---- The caller's context ----


def test_without_a_current_context_there_is_none_to_adopt() -> None:
    refused = in_another_thread(GlContext.current)
    assert isinstance(refused, errors.ContextMisuse) and refused.context == 0


def test_an_adopted_context_is_used_on_its_thread_only() -> None:
    with foreign_context() as foreign:
        context = GlContext.current()
        assert context.run(threading.get_ident) == threading.get_ident()
        refused = in_another_thread(context.finish)
        assert isinstance(refused, errors.ContextMisuse) and refused.thread != threading.get_ident()
        foreign.release_current()
        with pytest.raises(errors.ContextMisuse, match="not current"):
            context.finish()
        foreign.make_current()
        context.finish()


def test_a_context_that_moves_to_another_thread_is_used_there() -> None:
    with foreign_context() as foreign:
        context = GlContext.current()
        foreign.release_current()

        def elsewhere() -> object:
            foreign.make_current()
            try:
                context.finish()
                return GlContext.current()
            finally:
                foreign.release_current()

        assert in_another_thread(elsewhere) is context


def test_an_adopted_context_finds_its_state_as_it_was() -> None:
    from OpenGL import GL

    with foreign_context():
        context = GlContext.current()
        texture, buffer = GL.glGenTextures(1), GL.glGenBuffers(1)
        GL.glBindTexture(GL.GL_TEXTURE_2D, texture)
        GL.glBindBuffer(GL.GL_PIXEL_UNPACK_BUFFER, buffer)
        GL.glPixelStorei(GL.GL_UNPACK_ROW_LENGTH, 77)
        GL.glPixelStorei(GL.GL_UNPACK_SKIP_ROWS, 3)
        Texture(4, 4, context=context)
        PixelBuffer(64, context, persistent=False).release()
        assert GL.glGetInteger(GL.GL_TEXTURE_BINDING_2D) == texture
        assert GL.glGetInteger(GL.GL_PIXEL_UNPACK_BUFFER_BINDING) == buffer
        assert GL.glGetInteger(GL.GL_UNPACK_ROW_LENGTH) == 77
        assert GL.glGetInteger(GL.GL_UNPACK_SKIP_ROWS) == 3


def test_errors_that_the_owner_of_a_context_left_are_told_and_are_not_ours() -> None:
    with foreign_context():
        context = GlContext.current()
        library().glBindBuffer(1, 1)
        PixelBuffer(64, context, persistent=False).release()
        assert context.calls.found_errors == ["GL_INVALID_ENUM"]
        library().glBindBuffer(1, 1)
        GlFence(context).wait()
        assert context.calls.found_errors == ["GL_INVALID_ENUM"] * 2


def test_a_destroyed_context_is_noticed_and_what_is_mapped_stays() -> None:
    foreign = ForeignContext()
    context = GlContext.current()
    buffer = PixelBuffer(64, context, persistent=False)
    address = buffer.begin_access("rw")
    foreign.destroy()
    assert context.closed
    with pytest.raises(errors.PboDisconnected, match="destroyed"):
        buffer.begin_access("r")
    assert write_and_read(address)
    buffer.end_access("rw")
    buffer.release()
    assert not context.site.held


def write_and_read(address: int) -> bool:
    ctypes.memset(address, 5, 64)
    return ctypes.string_at(address, 64) == bytes([5]) * 64


def test_what_is_given_back_elsewhere_waits_for_the_thread_of_an_adopted_context() -> None:
    with foreign_context():
        context = GlContext.current()
        buffer = PixelBuffer(64, context, persistent=False)
        name = buffer.name
        in_another_thread(buffer.release)
        assert library().glIsBuffer(name)
        context.drain()
        assert not library().glIsBuffer(name)
