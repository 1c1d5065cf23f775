"""Owns: the names of RMM's compiled package. Must not know: who uses them."""

from tensormem.rmm.pylibrmm import memory_resource
from tensormem.rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from tensormem.rmm.pylibrmm.device_buffer import DeviceBuffer
from tensormem.rmm.pylibrmm.stream import CudaStreamFlags

__all__ = ["CudaStreamFlags", "CudaStreamPool", "DeviceBuffer", "memory_resource"]
