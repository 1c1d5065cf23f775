"""Owns: `dma`, memory that devices reach without a copy: DMA-BUFs of a heap, of udmabuf, or imported by descriptor.

Reads from low to high: ioctls; device, sync, sync_file, names, descriptor, mapping; heaps, udmabuf, availability,
buffer; making, egl_image. Must not know: tensors, and the other kinds of memory.
"""

from tensormem.memories.dma.availability import why_not
from tensormem.memories.dma.buffer import DmaBuffer
from tensormem.memories.dma.descriptor import is_dma_buf
from tensormem.memories.dma.heaps import list_heaps
from tensormem.memories.dma.making import allocate, from_fd
from tensormem.public_functions import explain_misspellings

__all__ = ["DmaBuffer", "allocate", "from_fd", "is_dma_buf", "list_heaps", "row_pitch_alignment", "why_not"]

row_pitch_alignment = 64
"""Bytes that the rows of an image begin at a multiple of: GPUs and video devices refuse to import others."""

explain_misspellings(globals())
