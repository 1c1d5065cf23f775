"""Owns: every public callable of the package, found by walking it, and those that are left out, each with the reason.

Must not know: what they are called with.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import tensormem

__all__ = ["LEFT_OUT", "functions", "methods_of", "public_modules"]

# By the beginning of a dotted name. What takes an address or a table of functions believes it: that is its contract.
LEFT_OUT = {
    "tensormem.cli": "commands, which own the terminal",
    "tensormem.__main__": "the same",
    "tensormem.pytest_plugin": "belongs to pytest",
    "tensormem.testing": "suites that run tests, and plans that make calls fail",
    "tensormem.distributed.dask": "needs a cluster",
    "tensormem.distributed.ray": "needs a cluster",
    "tensormem.top.screen": "owns the terminal",
    "tensormem.reports.selftest": "runs for minutes",
    "tensormem.reports.machine": "looks at the machine for seconds",
    "tensormem.gl.calls": "calls OpenGL with what it is given",
    "tensormem.gl.library": "calls OpenGL with what it is given",
    "tensormem.gl.display": "calls OpenGL with what it is given",
    "tensormem.gl.own_thread": "runs what it is given on a thread",
    "tensormem.memories.dma.ioctls": "asks the kernel for what it is given",
    "tensormem.drivers.driver_from_capsule": "takes a table of functions",
    "tensormem.drivers.plugins": "loads libraries by name",
    "tensormem.drivers.register_driver": "loads libraries by name",
    "tensormem.drivers.registry.use_platform": "another platform for the whole process",
    "tensormem.tensor.from_pointer": "takes an address",
    "tensormem.tensor.making.from_pointer": "takes an address",
    "tensormem.from_pointer": "takes an address",
    "tensormem.memories.storage.Storage": "takes an address",
    "tensormem.memories.Storage": "takes an address",
    "tensormem.interop.tvm_ffi": "imports a library of seconds",
    "tensormem.interop.jax": "imports a library of seconds",
    "tensormem.interop.torch": "imports a library of seconds",
    "tensormem.interop.numba": "imports a library of seconds",
    "tensormem.interop.cupy": "needs a GPU",
    "tensormem.interop.numpy.use": "NumPy's allocator for the whole process",
    "tensormem.mr.CallbackMemoryResource": "takes functions that return addresses",
    "tensormem.mr.resources.CallbackMemoryResource": "takes functions that return addresses",
}


def _is_left_out(name: str) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in LEFT_OUT)


def public_modules() -> Iterator[Any]:
    """The modules of the package that no underscore hides."""
    yield tensormem
    for found in pkgutil.walk_packages(tensormem.__path__, "tensormem."):
        if any(part.startswith("_") for part in found.name.split(".")) or _is_left_out(found.name):
            continue
        try:
            yield importlib.import_module(found.name)
        except ImportError:  # an extra that is not installed
            continue


def _names(module: Any) -> list[str]:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return [name for name in own if not name.startswith("_")]


def functions() -> dict[str, Callable[..., Any]]:
    """Public functions and classes by their shortest dotted name, each once."""
    found: dict[int, tuple[str, Callable[..., Any]]] = {}
    for module in public_modules():
        for name in _names(module):
            dotted = f"{module.__name__}.{name}"
            value = getattr(module, name, None)
            if not callable(value) or _is_left_out(dotted) or getattr(value, "_is_protocol", False):
                continue
            known = found.get(id(value))
            if known is None or len(dotted) < len(known[0]):
                found[id(value)] = dotted, value
    return dict(sorted(found.values()))


# Beside public names, what syntax and other libraries call.
_PROTOCOLS = """
__repr__ __str__ __hash__ __index__ __int__ __len__ __iter__ __next__ __getitem__ __setitem__ __contains__ __eq__ __lt__
__bool__ __enter__ __exit__ __reduce__ __copy__ __deepcopy__ __dlpack__ __dlpack_device__ __cuda_stream__ __format__
__array_interface__ __array__ __buffer__ __call__ __init__ __sizeof__ __dir__
""".split()  # noqa: SIM905


def methods_of(cls: type) -> list[str]:
    """What can be asked of an object of this class."""
    public = [name for name in dir(cls) if not name.startswith("_")]
    own = {name for base in cls.__mro__ if base is not object for name in vars(base)}
    special = [name for name in _PROTOCOLS if name in own]
    builtin = (int, str, tuple, dict, list)
    bases = [base for base in builtin if issubclass(cls, base)]
    inherited = {name for base in bases for name in dir(base)}
    return [name for name in public + special if name not in inherited and not _is_data(cls, name)]


def _is_data(cls: type, name: str) -> bool:
    value = inspect.getattr_static(cls, name, None)
    return isinstance(value, int | str | cls)
