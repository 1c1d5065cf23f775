"""Every promise of a kind of memory, kept by DMA-BUFs of a heap and of udmabuf."""

from tensormem._core import live_identities
from tensormem.memories import Storage, dma
from tensormem.testing.memories import MemoryConformance


class TestHeap(MemoryConformance):
    makes_system_calls = False  # those to a heap are no fault points

    def allocate(self, nbytes: int) -> Storage:
        return dma.allocate(nbytes, heap="system")

    def live(self) -> int | None:
        return live_identities()


class TestUdmabuf(TestHeap):
    def allocate(self, nbytes: int) -> Storage:
        return dma.allocate(nbytes, heap="udmabuf")
