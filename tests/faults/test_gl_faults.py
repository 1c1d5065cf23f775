"""OpenGL fails at its k-th call, for every k: the error is told, nothing stays behind, and the next try works."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tensormem as tm
from support.opengl import needs_opengl
from tensormem import errors
from tensormem.gl import GlContext, Texture, library
from tensormem.gl.calls import GlCalls
from tensormem.memories import allocate

pytestmark = needs_opengl
SHAPE = (4, 4, 4)


@pytest.fixture(scope="module")
def context() -> GlContext:
    return GlContext("gl")


@contextmanager
def failing(at: int) -> Iterator[list[str]]:
    """The calls of OpenGL that were begun; the one of this number fails and does nothing."""
    begun: list[str] = []
    real = GlCalls.__call__

    def call(self: GlCalls, name: str, *arguments: Any) -> Any:
        # Deleting and finishing are how a failure is tidied up; they are not refused for want of memory.
        if name.startswith("glDelete") or name == "glFinish":
            return real(self, name, *arguments)
        begun.append(name)
        if len(begun) == at:
            raise errors.DriverError(0x505, "GL_OUT_OF_MEMORY", "planned", name, "gl")
        return real(self, name, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GlCalls, "__call__", call)
        yield begun


def tensor(context: GlContext, persistent: bool) -> tm.Tensor:
    return tm.Tensor(allocate(64, "pbo", context=context, persistent=persistent), "uint8", SHAPE)


def touch(context: GlContext, persistent: bool) -> None:
    tensor(context, persistent).fill_(7)


def travel(context: GlContext, persistent: bool) -> None:
    there, back = tensor(context, persistent), tensor(context, persistent)
    there.fill_(7)
    with Texture(4, 4, "rgba8", context=context) as texture:
        texture.upload(there)
        texture.download(back)
    assert back.tolist() == [[[7] * 4] * 4] * 4


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("work", [touch, travel])
def test_a_call_that_fails_leaves_nothing_behind(
    context: GlContext, work: Callable[[GlContext, bool], None], persistent: bool
) -> None:
    with failing(at=0) as needed:
        work(context, persistent)
    assert needed
    for number in range(1, len(needed) + 1):
        with library().logged() as calls, failing(at=number):
            try:
                work(context, persistent)
            except errors.DriverError as failed:
                assert failed.call == needed[number - 1]
            else:
                # A point that cannot be marked is waited for at once.
                assert needed[number - 1] == "glFenceSync"
            context.drain()
        made, deleted = calls.count("glGenBuffers"), calls.count("glDeleteBuffers")
        assert deleted >= made and calls.count("glGenTextures") == calls.count("glDeleteTextures")
        assert context.buffers == set() and context.site.held == set()
    work(context, persistent)
