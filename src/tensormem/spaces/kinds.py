"""Owns: the words and numbers of this package: kinds of space, device and operation, and DLPack 1.3's device types.

Must not know: the values made of them. A plain `str` is accepted wherever one of the words is.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class DeviceType(IntEnum):
    """DLPack 1.3's number for a kind of device memory.

    >>> DeviceType.CUDA_MANAGED.value
    13
    """

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    OPENCL = 4
    VULKAN = 7
    METAL = 8
    VPI = 9
    ROCM = 10
    ROCM_HOST = 11
    EXT_DEV = 12
    CUDA_MANAGED = 13
    ONEAPI = 14
    WEBGPU = 15
    HEXAGON = 16
    MAIA = 17
    TRN = 18


class GpuVendor(StrEnum):
    """Whose GPU it is: the word in front of `cuda:0` and `rocm:0`.

    >>> GpuVendor("rocm") == "rocm"
    True
    """

    CUDA = "cuda"
    ROCM = "rocm"


class SpaceKind(StrEnum):
    """The four kinds of place where bytes live, in the order in which spaces sort.

    >>> SpaceKind("main") == "main"
    True
    """

    MAIN = "main"
    PINNED = "pinned"
    GPU = "gpu"
    MANAGED = "managed"


class DeviceKind(StrEnum):
    """The kinds of things that compute, in the order in which devices sort.

    >>> DeviceKind("cpu") == "cpu"
    True
    """

    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"


class OpKind(StrEnum):
    """What a compute device is wanted for.

    >>> OpKind("reduce") == "reduce"
    True
    """

    CONTRACT = "contract"
    BATCHED_GEMM = "batched_gemm"
    REDUCE = "reduce"
    TRACE = "trace"
    PERMUTE = "permute"
    ELEMENTWISE_MUL = "elementwise_mul"
    COPY = "copy"
