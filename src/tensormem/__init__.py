"""tensormem: one memory layer for tensors.

Where tensor bytes live, who hands them out and takes them back, when that is safe on asynchronous streams, and what
happened afterwards. Names are loaded when they are first used, so importing the package costs next to nothing.

>>> import tensormem as tm
>>> mr = tm.mr.HostMemoryResource()
>>> block = mr.allocate("1MiB", tag="weights")
>>> block.nbytes, block.tag
(1048576, 'weights')
>>> mr.deallocate(block)
"""

import sys

from tensormem.lazy_names import load_name

TYPE_CHECKING = False  # typing itself is slow to import; type checkers take this name for true
if TYPE_CHECKING:
    from tensormem import (
        copy,
        drivers,
        dtypes,
        errors,
        gl,
        images,
        interop,
        memories,
        mr,
        pools,
        rmm,
        sharing,
        spaces,
        streams,
        top,
        units,
        vmm,
    )
    from tensormem.dtypes import (
        DType,
        bfloat16,
        complex64,
        complex128,
        dtype,
        float16,
        float32,
        float64,
        int8,
        int16,
        int32,
        int64,
        uint8,
        uint16,
        uint32,
        uint64,
    )
    from tensormem.errors import TensormemError
    from tensormem.images import Image, PixelFormat, image
    from tensormem.memories import Storage, TensorMemory
    from tensormem.mr import limit, memory_stats, tag, use_resource
    from tensormem.pools import BlockCache, SharedBudget, TenantPool, VirtualMemoryPool
    from tensormem.sharing import Channel, FrameRing
    from tensormem.spaces import (
        ComputeDevice,
        LogicalMemorySpace,
        OpKind,
        gpu,
        main,
        managed,
        pinned,
        preferred_compute_devices,
    )
    from tensormem.streams import Event, Stream, StreamId
    from tensormem.tensor import (
        Tensor,
        TransferReport,
        arange,
        array,
        asarray,
        empty,
        empty_like,
        from_buffer,
        from_dlpack,
        from_external_fd,
        from_fd,
        from_file,
        from_numpy,
        from_pointer,
        full,
        full_like,
        ones,
        ones_like,
        wrap,
        zeros,
        zeros_like,
    )
    from tensormem.tensor.namespace import TensorModule
    from tensormem.trace.namespace import TraceModule
    from tensormem.vmm import GrowableBuffer, VirtualMemoryManager

    tensor: TensorModule
    trace: TraceModule

__version__ = "0.1.0"

__all__ = [
    "BlockCache",
    "Channel",
    "ComputeDevice",
    "DType",
    "Event",
    "FrameRing",
    "GrowableBuffer",
    "Image",
    "LogicalMemorySpace",
    "OpKind",
    "PixelFormat",
    "SharedBudget",
    "Storage",
    "Stream",
    "StreamId",
    "TenantPool",
    "Tensor",
    "TensorMemory",
    "TensormemError",
    "TransferReport",
    "VirtualMemoryManager",
    "VirtualMemoryPool",
    "arange",
    "array",
    "asarray",
    "bfloat16",
    "complex64",
    "complex128",
    "copy",
    "drivers",
    "dtype",
    "dtypes",
    "empty",
    "empty_like",
    "errors",
    "float16",
    "float32",
    "float64",
    "from_buffer",
    "from_dlpack",
    "from_external_fd",
    "from_fd",
    "from_file",
    "from_numpy",
    "from_pointer",
    "full",
    "full_like",
    "gl",
    "gpu",
    "image",
    "images",
    "int8",
    "int16",
    "int32",
    "int64",
    "interop",
    "limit",
    "main",
    "managed",
    "memories",
    "memory_stats",
    "mr",
    "ones",
    "ones_like",
    "pinned",
    "pools",
    "preferred_compute_devices",
    "rmm",
    "sharing",
    "spaces",
    "streams",
    "tag",
    "tensor",
    "top",
    "trace",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "units",
    "use_resource",
    "vmm",
    "wrap",
    "zeros",
    "zeros_like",
]

# Where each name that is not a module comes from.
_HOMES = {
    **dict.fromkeys(("DType", "dtype", "bfloat16", "complex64", "complex128"), "dtypes"),
    **dict.fromkeys(("float16", "float32", "float64", "int8", "int16", "int32", "int64"), "dtypes"),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), "dtypes"),
    **dict.fromkeys(("Event", "Stream", "StreamId"), "streams"),
    **dict.fromkeys(("limit", "memory_stats", "tag", "use_resource"), "mr"),
    **dict.fromkeys(("ComputeDevice", "LogicalMemorySpace", "OpKind", "preferred_compute_devices"), "spaces"),
    **dict.fromkeys(("gpu", "main", "managed", "pinned"), "spaces"),
    **dict.fromkeys(("GrowableBuffer", "VirtualMemoryManager"), "vmm"),
    **dict.fromkeys(("Storage", "TensorMemory"), "memories"),
    **dict.fromkeys(("Tensor", "TransferReport", "empty", "full", "zeros", "wrap"), "tensor"),
    **dict.fromkeys(
        ("arange", "array", "asarray", "empty_like", "full_like", "ones", "ones_like", "zeros_like"), "tensor"
    ),
    **dict.fromkeys(("from_buffer", "from_dlpack", "from_external_fd", "from_fd", "from_file"), "tensor"),
    **dict.fromkeys(("from_numpy", "from_pointer"), "tensor"),
    **dict.fromkeys(("BlockCache", "SharedBudget", "TenantPool", "VirtualMemoryPool"), "pools"),
    **dict.fromkeys(("Image", "PixelFormat", "image"), "images"),
    **dict.fromkeys(("Channel", "FrameRing"), "sharing"),
    "TensormemError": "errors",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    return load_name(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
