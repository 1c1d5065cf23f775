"""Every driver passes the same suite; one of somebody else's, compiled here against the headers, is admitted by it."""

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensormem as tm
from tensormem import drivers, errors
from tensormem.drivers import plugins
from tensormem.memories import Storage, TensorMemory
from tensormem.testing.drivers import DriverConformance

ROOT = Path(__file__).resolve().parents[2]


class TestHostDriver(DriverConformance):
    is_the_hosts = True

    def driver(self) -> Any:
        return drivers.host()


@cache
def toy_library() -> ctypes.CDLL:
    """The toy driver, compiled as a package would compile it, and loaded for as long as the process lives."""
    native = Path(tm._core.native_library())
    source = ROOT / "tests" / "support" / "toy_driver.cpp"
    options = ("-std=c++20", "-O1", "-fPIC", "-shared", f"-I{ROOT / 'native'}")
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/toy_driver.so"
        subprocess.run(["g++", *options, source, native, f"-Wl,-rpath,{native.parent}", "-o", target], check=True)
        library = ctypes.CDLL(target)
    library.toy_driver.restype = ctypes.c_void_p
    library.toy_copies.restype = ctypes.c_int64
    return library


def open_toy(library: ctypes.CDLL) -> Any:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return drivers.driver_from_capsule(make(library.toy_driver(), b"tensormem_driver", None))


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return toy_library()


@pytest.fixture
def toy(library: ctypes.CDLL) -> Iterator[Any]:
    yield drivers.register_driver("toy", lambda: open_toy(library))
    drivers.unregister_driver("toy")


class TestToyDriver(DriverConformance):
    def driver(self) -> Any:
        return open_toy(toy_library())


def test_a_driver_is_found_by_name_and_is_always_the_same_object(toy: Any, library: ctypes.CDLL) -> None:
    assert drivers.get("toy") is toy and toy.name == "toy" and open_toy(library) is toy
    with pytest.raises(errors.InvalidArgument):
        drivers.register_driver("toy", drivers.host)


def test_a_driver_of_an_installed_package_is_found_by_its_entry_point(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("toy", "toy_package:open", plugins.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda: open_toy(library))
    monkeypatch.setattr(plugins, "entry_points", lambda **wanted: EntryPoints([point]).select(**wanted))
    assert drivers.get("toy").name == "toy"
    drivers.unregister_driver("toy")


def test_what_is_no_driver_is_refused() -> None:
    for name in ("host", "cuda", "two words", ""):
        with pytest.raises(errors.InvalidArgument):
            drivers.register_driver(name, drivers.host)
    with pytest.raises(errors.InvalidArgument):
        drivers.register_driver("mine", lambda: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(errors.InvalidArgument):
        drivers.driver_from_capsule(3)
    with pytest.raises(errors.DriverUnavailable):
        drivers.get("mine")
    with pytest.raises(errors.InvalidArgument):
        drivers.unregister_driver("mine")


def test_tensors_are_copied_by_the_driver_of_their_memory(toy: Any, library: ctypes.CDLL) -> None:
    array = np.arange(12, dtype=np.int32)
    storage = Storage(
        array.ctypes.data,
        array.nbytes,
        owner=array,
        space=tm.gpu(0),
        memory=TensorMemory.MEM,
        device=(2, 0),
        driver=toy,
        host_accessible=False,
    )
    before = library.toy_copies()
    assert tm.Tensor(storage, "int32", (3, 4))[:, 1:3].to("main").tolist() == array.reshape(3, 4)[:, 1:3].tolist()
    assert library.toy_copies() == before + 1
