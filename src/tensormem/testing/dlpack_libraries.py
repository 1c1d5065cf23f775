"""Owns: the libraries that the rules are run over for information, and how each one makes, takes and reads tensors.

Must not know: the rules. A library is imported when its subjects are made.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tensormem.testing.dlpack_rules import Consumer, Producer

__all__ = ["LIBRARIES", "subjects"]

_ROWS = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def _ours() -> tuple[Producer, Consumer]:
    tm = import_module("tensormem")

    def make() -> Any:
        tensor = tm.empty((2, 3))
        memoryview(tensor).cast("B")[:] = memoryview(_floats()).cast("B")
        return tensor

    return (
        Producer("tensormem", make, lambda: make().as_readonly()),
        Consumer("tensormem", tm.from_dlpack, tm.Tensor.tolist, lambda tensor: not tensor.readonly),
    )


def _floats() -> Any:
    return import_module("array").array("f", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])


def _numpy() -> tuple[Producer, Consumer]:
    np = import_module("numpy")

    def frozen() -> Any:
        array = np.array(_ROWS, np.float32)
        array.flags.writeable = False
        return array

    return (
        Producer("numpy", lambda: np.array(_ROWS, np.float32), frozen),
        Consumer("numpy", np.from_dlpack, lambda array: array.tolist(), lambda array: array.flags.writeable),
    )


def _torch() -> tuple[Producer, Consumer]:
    torch = import_module("torch")
    return (
        Producer("torch", lambda: torch.tensor(_ROWS)),
        # It has no tensors that may not be written: taking read-only memory for one is what the rule is about.
        Consumer("torch", torch.from_dlpack, lambda tensor: tensor.tolist(), lambda tensor: True),
    )


def _jax() -> tuple[Producer, Consumer]:
    jax = import_module("jax")
    return (
        Producer("jax", lambda: jax.numpy.array(_ROWS), lambda: jax.numpy.array(_ROWS)),
        Consumer("jax", jax.dlpack.from_dlpack, lambda array: array.tolist(), lambda array: False),
    )


def _pyarrow() -> tuple[Producer, None]:
    pyarrow = import_module("pyarrow")
    np = import_module("numpy")
    make = lambda: pyarrow.Tensor.from_numpy(np.array(_ROWS, np.float32))  # noqa: E731
    return Producer("pyarrow", make), None


def _tvm_ffi() -> tuple[Producer, Consumer]:
    tvm_ffi = import_module("tvm_ffi")
    np = import_module("numpy")
    return (
        Producer("tvm-ffi", lambda: tvm_ffi.from_dlpack(np.array(_ROWS, np.float32))),
        Consumer("tvm-ffi", tvm_ffi.from_dlpack, lambda tensor: np.from_dlpack(tensor).tolist()),
    )


LIBRARIES: dict[str, Callable[[], tuple[Producer | None, Consumer | None]]] = {
    "tensormem": _ours,
    "numpy": _numpy,
    "torch": _torch,
    "jax": _jax,
    "pyarrow": _pyarrow,
    "tvm-ffi": _tvm_ffi,
}
"""By name: what makes a library's two subjects."""


def subjects(library: str) -> tuple[Producer | None, Consumer | None]:
    """The producer and the consumer of a library; None where it has no such side.

    >>> subjects("tensormem")[0].name
    'tensormem'
    """
    return LIBRARIES[library]()
