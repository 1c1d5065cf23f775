"""Owns: values that nobody should give, and some that one could: numbers at every edge, texts, shapes, containers,
objects that raise or lie when they are asked. Must not know: who is called with them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import tensormem as tm
from attacks.live_objects import MAKERS, new_path
from attacks.outcome import Expected
from tensormem import mr, streams

__all__ = ["close_descriptors", "hostile", "plausible"]

# No size between what is small and what nobody has: what would be granted would have to be touched.
_NUMBERS = [0, 1, 2, 3, 7, 64, 255, 256, 257, 4096, 65536, 2**20, 2**20 + 1]
_EDGES = [-1, -2, -(2**31), -(2**63), -(2**63) - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70, 10**30]
_TEXTS = [
    "",
    "a",
    "main",
    "gpu:0",
    "gpu:99",
    "host",
    "2MiB",
    "-1KiB",
    "1e999",
    "float32",
    "int4",
    "shm",
    "rw",
    "\0",
    "é" * 40,
]
_TEXTS += ["x" * 5000, "../nothing/here", "\ud800", "cpu:0", "9" * 40 + "GiB", "every", "wait", "nv12", "@attack", "kv"]


class _Raises:
    """Everything that Python may ask of it raises."""

    def __index__(self) -> int:
        raise RuntimeError("asked")

    __int__ = __len__ = __hash__ = __bool__ = __index__

    def __iter__(self) -> Any:
        raise RuntimeError("asked")

    __fspath__ = __str__ = __repr__ = __float__ = __iter__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("asked")

    def __cuda_stream__(self) -> Any:
        raise RuntimeError("asked")

    def __dlpack__(self, **options: Any) -> Any:
        raise RuntimeError("asked")


class _Lies:
    """It has every protocol, and each answers with nonsense."""

    def __index__(self) -> int:
        return 2**64 + 1

    def __len__(self) -> int:
        return 3

    def __getitem__(self, item: object) -> object:
        if isinstance(item, int) and item > 5:
            raise IndexError
        return self

    def __cuda_stream__(self) -> Any:
        return (0, 12345)

    def __dlpack__(self, **options: Any) -> Any:
        return 42

    def __dlpack_device__(self) -> Any:
        return ("x", None)

    def __fspath__(self) -> Any:
        return b"\0"

    __array_interface__ = {"version": 3, "shape": (2**60,), "typestr": "<f4", "data": (0, False)}  # noqa: RUF012


class _Int(int):
    """An integer with attributes."""


class _Text(str):
    """A text that is not equal to itself."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


def _generator() -> Any:
    yield 1
    raise RuntimeError("in the middle")


def _recursive() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def _array(draw: Random) -> Any:
    import numpy

    made = numpy.zeros((4, 5), draw.choice(["u1", "f4", "O", "M8[s]", "S3", ">i4"]))
    return made[:, ::-1] if draw.random() < 0.5 else made


_OBJECTS: list[Callable[[Random], Any]] = [
    lambda draw: None,
    lambda draw: draw.choice([True, False]),
    lambda draw: draw.choice([0.5, -0.0, float("nan"), float("inf"), 1e308]),
    lambda draw: draw.choice([b"", b"abc", b"\0" * 64, bytearray(b"abc" * 20)]),
    lambda draw: memoryview(bytearray(64)).cast("B", (8, 8)),
    lambda draw: _Raises(),
    lambda draw: _Lies(),
    lambda draw: _Int(draw.choice(_NUMBERS)),
    lambda draw: _Text(draw.choice(_TEXTS)),
    lambda draw: object(),
    lambda draw: lambda *args, **kwargs: None,
    lambda draw: type("Empty", (), {}),
    lambda draw: _generator(),
    lambda draw: _recursive(),
    lambda draw: 1j,
    lambda draw: ...,
    lambda draw: slice(draw.choice([None, -5, 2**70]), draw.choice([None, 3]), draw.choice([None, 0, -1, 2**64])),
    lambda draw: range(draw.choice([0, 3, 70])),
    lambda draw: {"a": 1},
    lambda draw: {1, 2},
    lambda draw: Expected("a value"),
    lambda draw: os.environ,
    lambda draw: draw.choice([tm.main, tm.pinned, tm.managed, tm.gpu(0), tm.gpu(7)]),
    lambda draw: draw.choice([tm, tm.mr, int, tm.Tensor, mr.HostMemoryResource]),
    _array,
]


def _number(draw: Random) -> int:
    return draw.choice(_EDGES if draw.random() < 0.5 else _NUMBERS)


def _container(draw: Random) -> Any:
    items = [hostile(draw, 2) for _ in range(draw.choice([0, 1, 2, 3, 5, 65]))]
    return draw.choice([tuple, list])(items)


def hostile(draw: Random, depth: int = 0) -> Any:
    """Any value."""
    dice = draw.random()
    if dice < 0.3:
        return _number(draw)
    if dice < 0.42:
        return draw.choice(_TEXTS)
    if dice < 0.5 and depth < 2:
        return _container(draw)
    if dice < 0.78:
        return draw.choice(_OBJECTS)(draw)
    return MAKERS[draw.choice(_MAKER_NAMES)]()


_MAKER_NAMES = list(MAKERS)


def _small_shape(draw: Random) -> Any:
    return draw.choice([3, (2, 3), [4], (0,), (1, 1, 5), ()])


def _descriptor(draw: Random) -> int:
    made = draw.choice([lambda: os.memfd_create("attack"), lambda: os.open(os.devnull, os.O_RDWR), _file_descriptor])
    fd: int = made()
    _descriptors.append(fd)
    return fd


def _file_descriptor() -> int:
    return os.open(new_path(), os.O_RDWR | os.O_CREAT)


_descriptors: list[int] = []


def close_descriptors() -> None:
    """Closes what was given as descriptors, unless somebody did."""
    while _descriptors:
        try:
            os.close(_descriptors.pop())
        except OSError:
            continue


# What a parameter of this name usually is.
_BY_NAME: dict[str, Callable[[Random], Any]] = {
    "nbytes": lambda draw: draw.choice([1, 100, 4096, "4KiB", "1MiB"]),
    "size": lambda draw: draw.choice([1, 65536, 2**21, "2MiB"]),
    "capacity": lambda draw: draw.choice([2**21, "4MiB", 4096]),
    "offset": lambda draw: draw.choice([0, 1, 4096, 2**21]),
    "alignment": lambda draw: draw.choice([1, 64, 256, 4096]),
    "stream": lambda draw: draw.choice([None, streams.default_stream(), MAKERS["stream"]()]),
    "block": lambda draw: MAKERS[draw.choice(["block", "block of a pool", "freed block"])](),
    "upstream": lambda draw: mr.HostMemoryResource(),
    "upstream_mr": lambda draw: mr.HostMemoryResource(),
    "mr": lambda draw: mr.PoolMemoryResource(mr.HostMemoryResource()),
    "shape": _small_shape,
    "dtype": lambda draw: draw.choice(["uint8", "float32", "int4", "complex64"]),
    "timeout": lambda draw: draw.choice([0, 0.01]),
    "path": lambda draw: new_path(),
    "fd": _descriptor,
    "frames_fd": _descriptor,
    "control_fd": _descriptor,
    "space": lambda draw: draw.choice(["main", "pinned", tm.main]),
    "memory": lambda draw: draw.choice(["mem", "shm"]),
    "driver": lambda draw: "host",
    "device": lambda draw: draw.choice(["host", 0, "main"]),
    "access": lambda draw: draw.choice(["read", "write", "rw"]),
    "flags": lambda draw: draw.choice(["read", "read_write", "none"]),
    "mode": lambda draw: draw.choice(["r", "rw", "latest", "every"]),
    "va": lambda draw: MAKERS["range"](),
    "physical": lambda draw: MAKERS["physical"](),
    "trace": lambda draw: MAKERS["trace"](),
    "tensor": lambda draw: MAKERS["tensor"](),
    "x": lambda draw: MAKERS["tensor"](),
    "thing": lambda draw: MAKERS["tensor, shared"](),
    "budget": lambda draw: draw.choice([None, MAKERS["shared budget"]()]),
    "width": lambda draw: draw.choice([2, 8, 64]),
    "height": lambda draw: draw.choice([2, 8, 64]),
    "callback": lambda draw: lambda *args: False,
    "name": lambda draw: draw.choice(["a", "b", "pool"]),
    "tag": lambda draw: draw.choice([None, "kv"]),
}


def plausible(draw: Random, name: str) -> Any:
    """What somebody could give for a parameter of this name; any value where the name says nothing."""
    maker = _BY_NAME.get(name)
    return hostile(draw) if maker is None else maker(draw)
