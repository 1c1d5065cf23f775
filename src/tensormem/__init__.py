"""tensormem: one memory layer for tensors.

Where tensor bytes live, who hands them out and takes them back, when that is safe on asynchronous streams, and what
happened afterwards.

>>> import tensormem as tm
>>> mr = tm.mr.HostMemoryResource()
>>> block = mr.allocate("1MiB", tag="weights")
>>> block.nbytes, block.tag
(1048576, 'weights')
>>> mr.deallocate(block)
"""

from tensormem import drivers, dtypes, errors, mr, spaces, streams, units
from tensormem.dtypes import DType, dtype
from tensormem.errors import TensormemError
from tensormem.mr import tag
from tensormem.spaces import ComputeDevice, LogicalMemorySpace, OpKind, gpu, main, managed, pinned
from tensormem.spaces import preferred_compute_devices
from tensormem.streams import Event, Stream

__version__ = "0.1.0"

__all__ = [
    "ComputeDevice",
    "DType",
    "Event",
    "LogicalMemorySpace",
    "OpKind",
    "Stream",
    "TensormemError",
    "drivers",
    "dtype",
    "dtypes",
    "errors",
    "gpu",
    "main",
    "managed",
    "mr",
    "pinned",
    "preferred_compute_devices",
    "spaces",
    "streams",
    "tag",
    "units",
]
