"""Owns: tensors as users make them and look at them.

A tensor is a description of bytes: storage, element type, shape, strides, offset. There is no arithmetic; other
libraries see the same bytes by DLPack, the buffer protocol or an array interface. The class is compiled; what it cannot
do alone is installed here. Reads from low to high: values, making, factories, descriptors, text, wire, pickling,
places, cache views, readers, hooks, namespace.
"""

import sys

from tensormem._core import (
    Tensor,
    empty,
    from_dlpack,
    full,
    install_cache_tensors,
    install_dlpack,
    install_tensors,
    zeros,
)
from tensormem.copy import TransferReport
from tensormem.memories import TensorMemory
from tensormem.mr import current
from tensormem.public_functions import explain_misspellings
from tensormem.spaces import main
from tensormem.tensor import cache_views, hooks
from tensormem.tensor.descriptors import from_fd
from tensormem.tensor.factories import (
    arange,
    array,
    asarray,
    empty_like,
    full_like,
    ones,
    ones_like,
    tensor_from_values,
    zeros_like,
)
from tensormem.tensor.making import (
    from_buffer,
    from_external_fd,
    from_file,
    from_numpy,
    from_pointer,
    wrap,
)
from tensormem.tensor.namespace import TensorModule

__all__ = [
    "Tensor",
    "TransferReport",
    "arange",
    "array",
    "asarray",
    "empty",
    "empty_like",
    "from_buffer",
    "from_dlpack",
    "from_external_fd",
    "from_fd",
    "from_file",
    "from_numpy",
    "from_pointer",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "tensor_from_values",
    "wrap",
    "zeros",
    "zeros_like",
]

install_tensors(hooks, *current.cells())
install_dlpack(hooks, main, TensorMemory.MEM)
install_cache_tensors(cache_views)
sys.modules[__name__].__class__ = TensorModule

explain_misspellings(globals())
