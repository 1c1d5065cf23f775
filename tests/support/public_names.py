"""Owns: every public callable of the package: functions, classes and their methods. One list for all promises."""

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable
from typing import Any

import tensormem

__all__ = ["CALLABLES", "CLASSES", "MISSING", "MODULES", "NAMES", "find", "is_offered"]

# Programs, and what is not public.
_NOT_PUBLIC = ("tensormem.__main__", "tensormem._core", "tensormem.cli")
MISSING: dict[str, str] = {}
"""Modules whose library is not installed here, and which one that is."""


def _is_here(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if str(missing.name).partition(".")[0] in ("", "tensormem"):
            raise
        MISSING[name] = str(missing.name)
    return name not in MISSING


MODULES = sorted(
    {
        module.name
        for module in pkgutil.walk_packages(tensormem.__path__, "tensormem.")
        if not module.name.startswith(_NOT_PUBLIC) and _is_here(module.name)
    }
    | {"tensormem"}
)
NAMES = [(name, public) for name in MODULES for public in getattr(importlib.import_module(name), "__all__", [])]
# Modules that users import from; what others list is for the package's own use.
_OFFERED = {
    *("tensormem", "tensormem.units", "tensormem.dtypes", "tensormem.config", "tensormem.testing.gpus"),
    *(f"tensormem.{name}" for name in ("copy", "drivers", "gl", "images", "memories", "mr", "pools", "sharing")),
    *(
        f"tensormem.{name}"
        for name in ("spaces", "streams", "tensor", "testing", "testing.gpus", "top", "trace", "vmm", "web")
    ),
    *(f"tensormem.memories.{name}" for name in ("dma", "pbo", "shm")),
    *(f"tensormem.interop.{name}" for name in ("arrow", "cupy", "jax", "numba", "numpy", "safetensors", "torch")),
    *(f"tensormem.rmm{name}" for name in ("", ".mr", ".statistics", ".allocators.torch", ".allocators.numba")),
    *(f"tensormem.rmm.pylibrmm.{name}" for name in ("device_buffer", "stream", "utils", "helper", "logger")),
    *(f"tensormem.{name}" for name in ("distributed", "distributed.ray", "distributed.dask")),
}
CLASSES = [(module, name) for module, name in NAMES if inspect.isclass(getattr(importlib.import_module(module), name))]


def find(full: str) -> Any:
    """What `module:name` or `module:class.method` stands for."""
    module, _, path = full.partition(":")
    value: Any = importlib.import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    return value


def is_offered(full: str) -> bool:
    """Whether `module:name` is a function or class of a module that users import from, and not a method."""
    module, _, path = full.partition(":")
    return module in _OFFERED and "." not in path


def _is_callable(value: object) -> bool:
    """Not aliases and protocols, which nobody calls; not errors and structs of C without arguments of their own."""
    if inspect.ismodule(value) or isinstance(value, typing.NewType) or typing.get_origin(value) is not None:
        return False
    if isinstance(value, type):
        plain = "__init__" in vars(value) or not issubclass(value, BaseException)
        of_c = type(value).__module__ == "_ctypes"
        return plain and not of_c and not getattr(value, "_is_protocol", False)
    ours = inspect.isroutine(value) or type(value).__module__.partition(".")[0] == "tensormem"
    return callable(value) and ours  # an object of another library has that one's arguments


def _methods(cls: type) -> list[str]:
    """The public methods that a class of ours defines itself or has from another of ours."""
    ours = [each for each in cls.__mro__ if each.__module__.partition(".")[0] == "tensormem"]
    names = {name for each in ours for name in vars(each) if not name.startswith("_")}
    return sorted(name for name in names if inspect.isroutine(getattr(cls, name, None)))


def _walk() -> dict[str, Callable[..., Any]]:
    found: dict[str, Any] = {}
    seen = set[int]()
    for module, name in NAMES:
        value = getattr(importlib.import_module(module), name)
        if not _is_callable(value) or id(value) in seen:
            continue
        seen.add(id(value))
        found[f"{module}:{name}"] = value
        for method in _methods(value) if isinstance(value, type) else ():
            found[f"{module}:{name}.{method}"] = getattr(value, method)
    return found


CALLABLES = _walk()
