"""Owns: NumPy arrays whose memory comes from a resource, and NumPy arrays over a block.

NumPy's hook for allocators (NEP 49) does the first: it is local to the thread or asynchronous task, and each array
remembers who allocated it, so arrays may outlive the `with`, the resource's variable, and the thread.
Must not know: tensors.

>>> import numpy as np
>>> import tensormem as tm
>>> mr = tm.mr.LimitingResourceAdaptor(tm.mr.HostMemoryResource(), "1MiB")
>>> with tm.interop.numpy.use(mr) as allocator:
...     kept = np.zeros(1000)
...     try:
...         np.zeros(2**20)
...     except MemoryError:
...         print(allocator.last_error)
cannot allocate 8,388,608 bytes: 8,000 of a budget of 1,048,576 are taken, 1,040,576 remain ...
>>> mr.bytes_outstanding
8000
>>> del kept
>>> mr.bytes_outstanding
0
"""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib import import_module
from math import prod
from operator import index
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from tensormem import errors
from tensormem._core import NumpyAllocator, check_numpy_table, note_shortage, watch_numpy
from tensormem.dtypes import DType
from tensormem.interop.library import hook_tag
from tensormem.mr import DeviceBlock, DeviceMemoryResource
from tensormem.public_functions import explain_misspellings
from tensormem.units import parse_size

__all__ = ["as_array", "use", "watch"]


def use(mr: DeviceMemoryResource, *, tag: str | None = None) -> AbstractContextManager[NumpyAllocator]:
    """Inside, arrays that NumPy creates in this thread or asynchronous task get their memory from `mr`.

    Their tag is `tag`, or the one in force here (`tm.tag`), or "numpy". When `mr` refuses, what leaves the scope is its
    own error, with its report, caused by NumPy's MemoryError; `last_error` of what `as` gives is the same.
    `np.zeros` clears its memory at once here, whereas NumPy alone leaves that to the first touch.
    """
    if not isinstance(mr, DeviceMemoryResource):
        raise errors.InvalidArgument(f"NumPy takes a memory resource, not {type(mr).__name__}")
    if not mr.is_host_accessible:
        raise errors.InvalidArgument(f"NumPy works on the CPU, which cannot touch the memory of {mr!r}")
    return _installed(NumpyAllocator(mr, hook_tag(tag, "numpy")), _function_table())


def watch(least: int | str = "64KiB") -> None:
    """From now on recordings tell of the arrays of `least` bytes and more that NumPy allocates itself, in every thread.

    Their memory stays NumPy's. Calling it again changes nothing.

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import tensormem as tm
    >>> watch()
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.tmt"
    >>> with tm.trace(path):
    ...     array = np.zeros(2**17)
    >>> tm.trace.open(path).peaks("tag")["numpy"].nbytes
    1048576
    """
    watch_numpy(_function_table(), parse_size(least))


@contextmanager
def _installed(allocator: NumpyAllocator, table: object) -> Generator[NumpyAllocator]:
    failures = allocator.failures
    previous = allocator.install(table)
    try:
        yield allocator
    except MemoryError as error:
        refusal = allocator.last_error
        if allocator.failures == failures or not isinstance(refusal, errors.TensormemError):
            raise
        note_shortage(refusal, allocator.mr, allocator.tag)
        raise refusal from error
    finally:
        NumpyAllocator.restore(table, previous)


@cache
def _function_table() -> object:
    """NumPy's table of C functions, checked; NumPy 1 kept it under another name."""
    core = "numpy._core" if int(np.__version__.partition(".")[0]) >= 2 else "numpy.core"
    table = import_module(f"{core}._multiarray_umath")._ARRAY_API
    check_numpy_table(table)
    return table


def as_array(
    block: DeviceBlock,
    dtype: npt.DTypeLike | DType = "uint8",
    shape: SupportsIndex | tuple[SupportsIndex, ...] | None = None,
) -> npt.NDArray[Any]:
    """An array over the memory of `block`, which lives as long as the array or a view of it.

    Without a shape: all of the block, which has to be a whole number of elements. Such a block goes back
    when it and the array are dropped; until then, `deallocate` raises `StillExported`.

    >>> import tensormem as tm
    >>> array = as_array(tm.mr.HostMemoryResource(zeroed=True).allocate(1024), "float32", (16, 8))
    >>> array[3, 4] = 2.5
    >>> array.shape, array.nbytes, float(array.sum())
    ((16, 8), 512, 2.5)
    """
    data = memoryview(block)
    element = _element(dtype)
    if shape is None:
        count, odd = divmod(block.nbytes, element.itemsize)
        if odd:
            raise errors.InvalidSize(block.nbytes, what=f"not a whole number of {element} elements; give a shape")
        return np.frombuffer(data, element)
    lengths = tuple(map(index, shape)) if isinstance(shape, tuple) else (index(shape),)
    count = prod(lengths)
    if any(length < 0 for length in lengths):
        raise errors.InvalidArgument(f"a shape has no negative length: {lengths}")
    if count * element.itemsize > block.nbytes:
        raise errors.InvalidSize(
            count * element.itemsize, what=f"{lengths} of {element} does not fit in the block's {block.nbytes:,} bytes"
        )
    return np.frombuffer(data, element, count).reshape(lengths)


def _element(dtype: npt.DTypeLike | DType) -> np.dtype[Any]:
    if isinstance(dtype, DType):
        if dtype.typestr is None:
            raise errors.InvalidDType(dtype, what="NumPy alone has no such type")
        dtype = dtype.typestr
    try:
        element = np.dtype(dtype)
    except TypeError as refused:
        raise errors.InvalidDType(dtype, what=str(refused)) from None
    if element.hasobject or element.itemsize == 0:
        raise errors.InvalidDType(
            element, what="memory of ours holds plain bytes, so elements have a size and no objects"
        )
    return element


explain_misspellings(globals())
