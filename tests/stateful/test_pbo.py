"""A model of pixel buffers and a texture: who holds a map, what the bytes are, and when the context is gone."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, precondition, rule

import tensormem as tm
from support.opengl import needs_opengl
from tensormem import errors
from tensormem.gl import GlContext, Texture
from tensormem.memories import TensorMap, allocate

SHAPE = (4, 4, 4)
values = st.integers(0, 255)


class PixelBuffers(RuleBasedStateMachine):
    """Two buffers, one that stays mapped and one that does not, and a texture between them."""

    held = Bundle("held")

    @initialize(api=st.sampled_from(["gl", "gles"]))
    def begin(self, api: str) -> None:
        self.context = GlContext(api)
        self.texture = Texture(4, 4, "rgba8", context=self.context)
        self.texture.upload(tm.zeros(SHAPE, "uint8"))
        self.in_texture = 0
        self.tensors = [self.make(persistent) for persistent in (True, False)]
        self.known = [1, 1]
        self.maps = [0, 0]
        self.closed = False

    def make(self, persistent: bool) -> tm.Tensor:
        storage = allocate(64, "pbo", context=self.context, persistent=persistent)
        return tm.Tensor(storage, "uint8", SHAPE).fill_(1)

    def expected(self, which: int) -> type[Exception] | None:
        """What an access or use has to raise now."""
        if self.closed:
            return errors.PboDisconnected
        return errors.PboMapped if which == 1 and self.maps[1] else None

    def attempt(self, which: int, act: Callable[[], object]) -> bool:
        expected = self.expected(which)
        try:
            act()
        except (errors.PboDisconnected, errors.PboMapped) as refused:
            assert type(refused) is expected
            return False
        assert expected is None
        return True

    @rule(which=st.integers(0, 1), value=values)
    def write(self, which: int, value: int) -> None:
        if self.attempt(which, lambda: self.tensors[which].fill_(value)):
            self.known[which] = value

    @rule(which=st.integers(0, 1))
    def read(self, which: int) -> None:
        got: list[object] = []
        if self.attempt(which, lambda: got.append(self.tensors[which].tolist())):
            assert got == [[[[self.known[which]] * 4] * 4] * 4]

    @rule(which=st.integers(0, 1))
    def upload(self, which: int) -> None:
        if self.attempt(which, lambda: self.texture.upload(self.tensors[which])):
            self.in_texture = self.known[which]

    @rule(which=st.integers(0, 1))
    def download(self, which: int) -> None:
        if self.attempt(which, lambda: self.texture.download(self.tensors[which])):
            self.known[which] = self.in_texture

    @rule(target=held, which=st.integers(0, 1))
    def hold(self, which: int) -> tuple[int, TensorMap] | None:
        made: list[TensorMap] = []
        if not self.attempt(which, lambda: made.append(self.tensors[which].map("rw"))):
            return None
        self.maps[which] += 1
        return which, made[0]

    @rule(holding=held, value=values)
    def write_through(self, holding: tuple[int, TensorMap] | None, value: int) -> None:
        if holding is not None:
            if not self.closed:
                self.context.finish()  # whoever writes through an old map has to wait by himself
            np.asarray(holding[1])[...] = value
            self.known[holding[0]] = value

    @rule(holding=consumes(held))
    def let_go(self, holding: tuple[int, TensorMap] | None) -> None:
        if holding is not None:
            assert int(np.asarray(holding[1])[0, 0, 0]) == self.known[holding[0]]
            holding[1].unmap()
            self.maps[holding[0]] -= 1

    @precondition(lambda self: not self.closed)
    @rule()
    def close(self) -> None:
        self.context.close()
        self.closed = True

    def teardown(self) -> None:
        if hasattr(self, "context"):
            self.texture.close()
            for tensor in self.tensors:
                with suppress(BufferError):  # a map that is still held goes with the machine
                    tensor.close()
            self.context.close()


TestPixelBuffers = needs_opengl(PixelBuffers.TestCase)
TestPixelBuffers.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
