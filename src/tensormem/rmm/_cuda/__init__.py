"""Owns: which device is current, as RMM's users ask for it. Must not know: resources, buffers."""

from tensormem.rmm._cuda import gpu

__all__ = ["gpu"]
