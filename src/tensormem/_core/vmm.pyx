# cython: language_level=3, freethreading_compatible=True
"""Owns: virtual memory: address ranges, physical memory and its mappings, and the buffer that grows in place."""
include "vmm/virtual_memory.pxi"
include "vmm/growable_buffer.pxi"
