"""Owns: tensors as users make them and look at them.

A tensor is a description of bytes: storage, element type, shape, strides, offset. There is no arithmetic; other
libraries see the same bytes by DLPack, the buffer protocol or an array interface. The class is compiled; what it cannot
do alone is installed here. Reads from low to high: values, making, descriptors, text, wire, pickling, places, hooks.
"""

from tensormem._core import Tensor, empty, from_dlpack, full, install_dlpack, install_tensors, zeros
from tensormem.copy import TransferReport
from tensormem.memories import TensorMemory
from tensormem.mr import current
from tensormem.spaces import main
from tensormem.tensor import hooks
from tensormem.tensor.descriptors import from_fd
from tensormem.tensor.making import (
    from_buffer,
    from_external_fd,
    from_file,
    from_numpy,
    from_pointer,
    wrap,
)

__all__ = [
    "Tensor",
    "TransferReport",
    "empty",
    "from_buffer",
    "from_dlpack",
    "from_external_fd",
    "from_fd",
    "from_file",
    "from_numpy",
    "from_pointer",
    "full",
    "wrap",
    "zeros",
]

install_tensors(hooks, *current.cells())
install_dlpack(hooks, main, TensorMemory.MEM)
