"""An object that was made around its class, as by a subclass that forgets `super().__init__()`, is refused or answers
with errors. It never takes the process down."""

import importlib
import inspect
import os
import pkgutil
from collections.abc import Iterator

import pytest

import tensormem._core as core

SPECIAL = {"__init__", "__repr__", "__str__", "__hash__", "__index__", "__enter__", "__len__", "__iter__", "__eq__"}
PROTOCOLS = {"__dlpack__", "__dlpack_device__", "__array_interface__", "__cuda_stream__", "__reduce__"}


def core_classes() -> Iterator[type]:
    for found in pkgutil.iter_modules(core.__path__):
        if found.name.startswith("lib"):
            continue
        module = importlib.import_module(f"{core.__name__}.{found.name}")
        for value in vars(module).values():
            if inspect.isclass(value) and value.__module__ == module.__name__ and not issubclass(value, (int, str)):
                yield value


def touch_everything(cls: type) -> None:
    made = cls.__new__(cls)
    names = [name for name in dir(cls) if not name.startswith("__") or name in SPECIAL | PROTOCOLS]
    for name in names:
        for arguments in ((), (1,), (1, 2), (1, 2, 3), (made,), (made, made), (made, 1, 2)):
            try:
                found = getattr(made, name)
                if callable(found):
                    found(*arguments)
            except Exception:
                continue


def ending_of(cls: type) -> int:
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            touch_everything(cls)
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize(
    "cls", list(core_classes()), ids=lambda cls: f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}"
)
def test_an_unmade_object_never_crashes(cls: type) -> None:
    assert ending_of(cls) == 0


@pytest.mark.parametrize(
    "cls", [core.PhysicalAllocation, core.VirtualAddressRange, core.Mapping, core.Driver, core.PoolBlock]
)
def test_what_only_the_core_makes_says_where_it_comes_from(cls: type) -> None:
    for make in (cls, lambda: cls.__new__(cls), lambda: type("Mine", (cls,), {})()):
        with pytest.raises(TypeError, match=r"come from|comes from|not an acceptable base type"):
            make()
