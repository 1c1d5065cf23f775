# cython: language_level=3, freethreading_compatible=True
"""Owns: what other libraries meet: DLPack, and the allocators that they call."""
include "interop/dlpack.pxi"
include "interop/allocators.pxi"
