"""An object that was made around its class, as by a subclass that forgets `super().__init__()`, is refused or answers
with errors. It never takes the process down, and never waits for ever."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import tensormem._core as core

# One fresh process, which has no threads of other libraries, forks a child for every class; an alarm ends what waits.
PROBE = r"""
import importlib, inspect, os, pkgutil, signal
import tensormem._core as core

SPECIAL = {"__init__", "__repr__", "__str__", "__hash__", "__index__", "__enter__", "__len__", "__iter__", "__eq__",
           "__dlpack__", "__dlpack_device__", "__array_interface__", "__cuda_stream__", "__reduce__"}


def core_classes():
    for found in pkgutil.iter_modules(core.__path__):
        if found.name.startswith("lib"):
            continue
        module = importlib.import_module(f"{core.__name__}.{found.name}")
        for value in vars(module).values():
            if inspect.isclass(value) and value.__module__ == module.__name__ and not issubclass(value, (int, str)):
                yield value


def touch_everything(cls):
    made = cls.__new__(cls)
    for name in [name for name in dir(cls) if not name.startswith("__") or name in SPECIAL]:
        for arguments in ((), (1,), (1, 2), (1, 2, 3), (made,), (made, made), (made, 1, 2)):
            try:
                found = getattr(made, name)
                if callable(found):
                    found(*arguments)
            except Exception:
                continue


for cls in core_classes():
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            touch_everything(cls)
        finally:
            os._exit(0)
    ending = os.waitpid(child, 0)[1]
    print(f"{cls.__module__}.{cls.__name__}", "fine" if ending == 0 else f"ended with {ending}", flush=True)
"""


def test_an_unmade_object_never_crashes() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.endswith(" fine")] == []
    assert len(lines) > 50


@pytest.mark.parametrize(
    "cls", [core.PhysicalAllocation, core.VirtualAddressRange, core.Mapping, core.Driver, core.PoolBlock]
)
def test_what_only_the_core_makes_says_where_it_comes_from(cls: Any) -> None:
    makers: list[Callable[[], object]] = [cls, lambda: cls.__new__(cls), lambda: type("Mine", (cls,), {})()]
    for make in makers:
        with pytest.raises(TypeError, match=r"come from|comes from|not an acceptable base type"):
            make()
