"""PixelBuffer: one map at a time, waits for OpenGL, and is given back where it belongs."""

import ctypes
import gc
import threading

import pytest

from support.opengl import needs_opengl
from tensormem import errors
from tensormem.gl import GlContext, PixelBuffer, library

pytestmark = needs_opengl


@pytest.fixture(scope="module")
def context() -> GlContext:
    return GlContext()


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("api", ["gl", "gles"])
def test_bytes_written_in_one_access_are_read_in_the_next(api: str, persistent: bool) -> None:
    with GlContext(api) as context:
        buffer = PixelBuffer(1000, context, persistent=persistent)
        ctypes.memset(buffer.begin_access("w"), 42, 1000)
        buffer.end_access("w")
        assert ctypes.string_at(buffer.begin_access("r"), 1000) == bytes([42]) * 1000
        buffer.end_access("r")
        buffer.release()


def test_a_second_map_is_refused_and_the_first_goes_on(context: GlContext) -> None:
    buffer = PixelBuffer(64, context, persistent=False)
    address = buffer.begin_access("rw")
    for mode in ("r", "w", "rw"):
        with pytest.raises(errors.PboMapped) as caught:
            buffer.begin_access(mode)
        assert caught.value.buffer == buffer.name and isinstance(caught.value, BufferError)
    ctypes.memset(address, 1, 64)
    buffer.end_access("rw")
    buffer.begin_access("r")
    buffer.end_access("r")
    buffer.release()


def test_a_persistent_buffer_has_one_address_from_beginning_to_end(context: GlContext) -> None:
    buffer = PixelBuffer(64, context, persistent=True)
    assert buffer.address == buffer.begin_access("r") == buffer.begin_access("rw") != 0
    assert not buffer.mapped
    buffer.release()


def test_an_interrupt_while_mapping_leaves_no_map(context: GlContext, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = PixelBuffer(64, context, persistent=False)
    run = context.run

    def interrupted(function: object, *arguments: object) -> None:
        run(function, *arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(context, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            buffer.begin_access("r")
    context.drain()
    assert not buffer.mapped
    buffer.begin_access("r")
    buffer.end_access("r")
    buffer.release()


def test_a_buffer_too_large_for_opengl_is_refused_by_its_error_and_leaves_nothing(context: GlContext) -> None:
    with library().logged() as calls, pytest.raises(errors.DriverError, match="GL_OUT_OF_MEMORY"):
        PixelBuffer(2**62, context, persistent=False)
    context.drain()
    assert calls.count("glGenBuffers") == 1
    assert not context.site.held


def test_a_usage_that_is_none_and_a_context_without_the_means_are_refused(context: GlContext) -> None:
    with pytest.raises(errors.InvalidArgument):
        PixelBuffer(64, context, persistent=False, usage="sideways")


def test_closing_the_context_under_a_map_keeps_the_memory_until_it_is_unmapped() -> None:
    context = GlContext()
    mapped, kept = PixelBuffer(4096, context, persistent=False), PixelBuffer(4096, context, persistent=True)
    idle = PixelBuffer(4096, context, persistent=False)
    addresses = mapped.begin_access("rw"), kept.begin_access("rw")
    context.close()
    for buffer in (mapped, kept, idle):
        with pytest.raises(errors.PboDisconnected, match=f"pixel buffer {buffer.name}"):
            buffer.begin_access("r")
    for address in addresses:
        ctypes.memset(address, 3, 4096)
    mapped.end_access("rw")
    kept.end_access("rw")
    for buffer in (mapped, kept, idle):
        buffer.release()
        buffer.release()
    context.drain()
    assert not context.site.held


def test_deleting_happens_on_the_thread_of_the_context_wherever_the_garbage_is_collected(context: GlContext) -> None:
    where: list[int] = []
    buffer = PixelBuffer(64, context, persistent=True)
    delete = buffer._delete

    def noted() -> None:
        where.append(threading.get_ident())
        delete()

    buffer._delete = noted  # type: ignore[method-assign]

    class Holder:
        def __init__(self) -> None:
            self.me, self.buffer = self, buffer

        def __del__(self) -> None:
            self.buffer.release()

    Holder()
    collector = threading.Thread(target=gc.collect)
    collector.start()
    collector.join()
    context.drain()
    assert where == [context.run(threading.get_ident)]
    assert not context.run(context.calls, "glIsBuffer", buffer.name)


def test_eight_threads_allocate_map_and_delete_together() -> None:
    failures: list[BaseException] = []

    def work(context: GlContext, seed: int) -> None:
        try:
            for turn in range(40):
                buffer = PixelBuffer(64 + turn, context, persistent=turn % 2 == 0)
                ctypes.memset(buffer.begin_access("w"), seed, 64)
                buffer.end_access("w")
                assert ctypes.string_at(buffer.begin_access("r"), 64) == bytes([seed]) * 64
                buffer.end_access("r")
                buffer.release()
        except BaseException as error:
            failures.append(error)

    with GlContext() as context:
        threads = [threading.Thread(target=work, args=(context, seed)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        context.drain()
        assert failures == [] and not context.site.held


def test_a_context_that_is_closed_while_threads_use_it_refuses_them_all() -> None:
    ends: list[str] = []

    def work(context: GlContext) -> None:
        try:
            while True:
                buffer = PixelBuffer(64, context, persistent=False)
                buffer.begin_access("w")
                buffer.end_access("w")
                buffer.release()
        except errors.PboDisconnected:
            ends.append("refused")

    context = GlContext()
    threads = [threading.Thread(target=work, args=(context,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    context.finish()
    context.close()
    for thread in threads:
        thread.join()
    assert ends == ["refused"] * 4
