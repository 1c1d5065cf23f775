"""A frame ring whose frames are one DMA-BUF: written by another process, read here, every access bracketed."""

import os

import tensormem as tm
from tensormem.memories import TensorMemory
from vm.guest.kernel_view import live_buffers, open_descriptors


def test_frames_of_a_dma_buffer_go_from_one_process_to_another() -> None:
    live, fds = live_buffers(), open_descriptors()
    with tm.FrameRing(2, (4, 8), "uint8", memory="dma") as ring, ring.as_readonly() as reader:
        assert live_buffers() == live + 1
        child = os.fork()
        if child == 0:
            try:
                with ring.write(timeout=60) as frame, frame.tensor.map("w") as mapped:
                    memoryview(mapped).cast("B")[:] = bytes(range(32))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        with reader.read(timeout=60) as seen:
            assert (seen.number, seen.tensor.memory, seen.tensor.readonly) == (1, TensorMemory.DMA, True)
            assert bytes(memoryview(seen.tensor).cast("B")) == bytes(range(32))
            assert seen.tensor.storage.unplanned_accesses == 1
        with ring.write(timeout=60) as frame:
            frame.tensor.fill_(3)
        with reader.read(timeout=60) as seen:
            assert seen.tensor.tolist() == [[3] * 8] * 4
    del frame, seen
    assert (live_buffers(), open_descriptors()) == (live, fds)
