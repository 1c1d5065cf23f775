# cython: language_level=3, freethreading_compatible=True
"""Owns: memory between processes: shared memory, rings of frames, and the messages that describe tensors."""
include "share/shared_memory.pxi"
include "share/frame_ring.pxi"
include "share/tensor_messages.pxi"
include "share/waits.pxi"
