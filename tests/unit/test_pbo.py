"""pbo: tensors over pixel buffers, from NumPy to a texture and back without a copy by the CPU."""

import gc
import threading

import numpy as np
import pytest

import tensormem as tm
from support.opengl import foreign_context, needs_opengl
from support.python_processes import check_python
from tensormem import errors
from tensormem.gl import GlContext, PixelBuffer, Texture, library
from tensormem.memories import allocate, is_available

pytestmark = needs_opengl
both = pytest.mark.parametrize("persistent", [True, False])


def pbo(shape: tuple[int, ...], context: GlContext | None = None, *, persistent: bool = True) -> tm.Tensor:
    storage = allocate(int(np.prod(shape)), "pbo", context=context, persistent=persistent)
    return tm.Tensor(storage, "uint8", shape)


def frame(height: int = 48, width: int = 64) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(height).integers(0, 256, (height, width, 4), dtype=np.uint8)


@both
def test_a_frame_goes_through_a_texture_into_a_second_buffer(persistent: bool) -> None:
    sent = frame()
    there, back = pbo(sent.shape, persistent=persistent), pbo(sent.shape, persistent=persistent)
    with there.map("w") as mapped:
        np.asarray(mapped)[...] = sent
    with Texture(64, 48, "rgba8") as texture:
        texture.upload(there)
        texture.download(back)
    with back.map("r") as mapped:
        assert np.array_equal(np.asarray(mapped), sent)


@both
def test_nothing_is_copied_on_the_way(persistent: bool) -> None:
    sent = frame()
    there, back = pbo(sent.shape, persistent=persistent), pbo(sent.shape, persistent=persistent)
    buffer = there.storage.owner
    with Texture(64, 48, "rgba8") as texture, library().logged() as calls:
        with there.map("w") as mapped:
            array = np.asarray(mapped)
            assert array.ctypes.data == mapped.ptr == buffer.address
            array[...] = sent
            del array
        texture.upload(there)
        texture.download(back)
        with back.map("r"):
            pass
        texture.context.drain()
    assert calls.count("glTexSubImage2D") == calls.count("glGetTexImage") == 1
    maps, unmaps = calls.count("glMapNamedBufferRange"), calls.count("glUnmapNamedBuffer")
    assert maps == unmaps == (0 if persistent else 2)
    # Moving bytes by copy would need one of these.
    assert not {"glBufferData", "glBufferSubData", "glGetBufferSubData", "glReadPixels"} & set(calls)


def test_who_touches_a_persistent_buffer_waits_for_opengl_only_where_he_must() -> None:
    tensor = pbo((48, 64, 4))
    with Texture(64, 48, "rgba8") as texture:
        for act, mode, waits in (
            (texture.upload, "r", False),
            (texture.upload, "w", True),
            (texture.download, "r", True),
            (texture.download, "rw", True),
        ):
            act(tensor)
            with library().logged() as calls:
                tensor.map(mode).unmap()
            assert ("glClientWaitSync" in calls) is waits
            assert not tensor.storage.owner.busy


def test_rows_with_gaps_go_to_a_texture_as_they_are() -> None:
    storage = allocate(48 * 320, "pbo")
    padded = tm.Tensor(storage, "uint8", (48, 64, 4), strides=(320, 4, 1))
    sent = frame()
    padded.copy_(tm.from_numpy(sent))
    back = pbo((48, 64, 4))
    with Texture(64, 48, "rgba8") as texture, library().logged() as calls:
        texture.upload(padded)
        texture.download(back)
    assert calls.count("glTexSubImage2D") == 1
    assert np.array_equal(back.numpy(), sent)


def test_one_map_at_a_time_and_none_while_opengl_uses_it() -> None:
    tensor = pbo((4, 4, 4), persistent=False)
    with Texture(4, 4, "rgba8") as texture, tensor.map("rw") as first:
        for use in (lambda: tensor.map("r"), lambda: memoryview(tensor), lambda: texture.upload(tensor)):
            with pytest.raises(errors.PboMapped):
                use()
        assert first.mapped
    memoryview(tensor).release()
    with pytest.raises(errors.NotSupported):
        _ = tensor.ptr


def test_an_array_keeps_the_map_open_and_an_unmap_is_refused_meanwhile() -> None:
    tensor = pbo((4, 4, 4), persistent=False)
    mapped = tensor.map("w")
    array = np.asarray(mapped)
    with pytest.raises(BufferError):
        mapped.unmap()
    del array
    mapped.unmap()
    mapped.unmap()
    assert not tensor.storage.owner.mapped


@both
def test_arrays_outlive_a_closed_context_and_what_comes_later_is_refused(persistent: bool) -> None:
    context = GlContext()
    tensor = pbo((4096,), context, persistent=persistent)
    array = tensor.numpy()
    context.close()
    array[:] = 9
    assert int(array.sum()) == 9 * 4096
    with pytest.raises(errors.PboDisconnected):
        tensor.map("r")
    with pytest.raises(errors.PboDisconnected):
        Texture(4, 4, context=context)
    del array, tensor
    gc.collect()
    context.drain()
    assert not context.site.held


def test_a_tensor_collected_in_another_thread_gives_its_buffer_back() -> None:
    with GlContext() as context:
        kept: list[object] = [pbo((64,), context)]
        kept.append(kept)  # only a collector finds it
        del kept
        collector = threading.Thread(target=gc.collect)
        collector.start()
        collector.join()
        context.drain()
        assert context.buffers == set()


def test_textures_and_buffers_of_two_contexts_do_not_meet() -> None:
    with GlContext() as one, GlContext() as other:
        texture, tensor = Texture(4, 4, context=one), pbo((4, 4, 4), other)
        with pytest.raises(errors.InvalidArgument, match="another context"):
            texture.upload(tensor)


def test_another_client_of_the_context_sees_the_same_bytes() -> None:
    from OpenGL import GL

    sent = frame()
    with foreign_context():
        context = GlContext.current()
        tensor = pbo(sent.shape, context, persistent=False)
        tensor.copy_(tm.from_numpy(sent))
        name = tensor.storage.owner.name
        GL.glBindBuffer(GL.GL_PIXEL_PACK_BUFFER, name)
        got = np.zeros_like(sent)
        GL.glGetBufferSubData(GL.GL_PIXEL_PACK_BUFFER, 0, sent.nbytes, got)
        assert np.array_equal(got, sent)
        GL.glBufferSubData(GL.GL_PIXEL_PACK_BUFFER, 0, sent.nbytes, np.ascontiguousarray(sent[::-1]))
        assert np.array_equal(tensor.map("r").numpy(), sent[::-1])
        texture = GL.glGenTextures(1)
        GL.glBindTexture(GL.GL_TEXTURE_2D, texture)
        GL.glBindBuffer(GL.GL_PIXEL_PACK_BUFFER, 0)
        GL.glBindBuffer(GL.GL_PIXEL_UNPACK_BUFFER, name)
        GL.glTexImage2D(GL.GL_TEXTURE_2D, 0, GL.GL_RGBA8, 64, 48, 0, GL.GL_RGBA, GL.GL_UNSIGNED_BYTE, None)
        shown = GL.glGetTexImage(GL.GL_TEXTURE_2D, 0, GL.GL_RGBA, GL.GL_UNSIGNED_BYTE, outputType=bytes)
        assert bytes(shown) == sent[::-1].tobytes()


def test_what_cannot_be_asked_for_is_refused() -> None:
    for nbytes in (0, -1, 2**63):
        with pytest.raises(errors.InvalidSize):
            allocate(nbytes, "pbo")
    with pytest.raises(errors.MemoryUnavailable, match="main"):
        allocate(64, "pbo", tm.pinned)
    with pytest.raises(errors.InvalidArgument):
        allocate(64, "pbo", usage="sideways")
    with GlContext() as context:
        pass
    with pytest.raises(errors.PboDisconnected):
        allocate(64, "pbo", context=context)


def test_an_older_opengl_maps_and_unmaps_and_has_nothing_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = frame()
    with GlContext("gl") as context:
        monkeypatch.setattr(context, "version", (3, 3))
        monkeypatch.setattr(context, "extensions", frozenset())
        with pytest.raises(errors.MemoryUnavailable, match="persistent=False"):
            allocate(64, "pbo", context=context, persistent=True)
        storage = allocate(sent.nbytes, "pbo", context=context)
        assert not storage.host_accessible
        tensor = tm.Tensor(storage, "uint8", sent.shape)
        with library().logged() as calls:
            tensor.copy_(tm.from_numpy(sent))
            assert np.array_equal(tensor.numpy(), sent)
        assert calls.count("glMapBufferRange") == calls.count("glUnmapBuffer") == 2


def test_the_kind_is_there_and_is_used_by_name() -> None:
    assert is_available("pbo")
    tensor = tm.full((3, 4), 7, "int16", memory="pbo")
    assert tensor.memory is tm.TensorMemory.PBO and tensor.tolist() == [[7] * 4] * 3
    assert isinstance(tensor.storage.owner, PixelBuffer)
    labelled = tm.empty(4, memory="pbo", tag="left camera", alignment=64)
    assert labelled.ptr % 64 == 0 and "left camera" in repr(labelled.storage.owner)
    for alignment in (3, 0, 1 << 30):
        with pytest.raises(errors.InvalidAlignment):
            allocate(4, "pbo", alignment=alignment)


def test_without_opengl_the_kind_says_what_is_missing() -> None:
    check_python(
        """
        import os
        os.environ["__EGL_VENDOR_LIBRARY_FILENAMES"] = "/nowhere/at_all.json"
        import tensormem as tm
        from tensormem.memories import is_available
        answer = is_available("pbo")
        assert not answer and answer.reason, answer
        try:
            tm.empty(4, memory="pbo")
        except tm.errors.MemoryUnavailable as refused:
            assert refused.kind == "pbo" and refused.reason == answer.reason
        else:
            raise SystemExit(3)
        assert tm.empty(4, use="gpu").memory in ("dma", "mem")
        """
    )


def test_an_interpreter_ends_well_with_live_arrays() -> None:
    check_python(
        """
        import numpy, sys
        import tensormem as tm
        from tensormem.gl import GlContext, Texture
        kept = tm.zeros((64, 64, 4), "uint8", memory="pbo")
        array = kept.numpy()
        once = tm.Tensor(tm.memories.allocate(4096, "pbo", persistent=False), "uint8", 4096)
        held = once.numpy()
        texture = Texture(64, 64)
        texture.upload(kept)
        GlContext.default().close()
        array[:] = 1
        held[:] = 1
        """
    )
