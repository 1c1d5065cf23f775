"""Every promise of a kind of memory, kept by DMA-BUFs of a heap and of udmabuf."""

from tensormem.memories import Storage, dma
from tensormem.memories.dma import making
from tensormem.testing.memories import MemoryConformance


class TestHeap(MemoryConformance):
    def allocate(self, nbytes: int) -> Storage:
        return dma.allocate(nbytes, heap="system")

    def live(self) -> int | None:
        return making._identities.known


class TestUdmabuf(TestHeap):
    def allocate(self, nbytes: int) -> Storage:
        return dma.allocate(nbytes, heap="udmabuf")
