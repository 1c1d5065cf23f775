"""What runs in the workers of a Dask cluster."""

from typing import Any

import numpy as np

import tensormem as tm
from tensormem.distributed import installed
from tensormem.distributed.dask import handover
from tensormem.distributed.dask.arrays import tensor_behind

_kept: list[tm.Tensor] = []


def keep(nbytes: int) -> None:
    _kept.append(tm.empty(nbytes, "uint8"))


def drop_kept() -> None:
    _kept.clear()


def make(value: int, nbytes: int) -> tm.Tensor:
    return tm.full((nbytes,), value, "uint8")


def array_of(value: int, nbytes: int, memory: str, skipped: int = 0) -> Any:
    """A NumPy array over a tensor, or a part of it."""
    return tm.full((nbytes + skipped,), value, "uint8", memory=memory).numpy()[skipped:]


def sum_of(array: Any) -> int:
    return int(array.sum(dtype="int64"))


def look_at_arrays(arrays: list[Any]) -> list[tuple[str, bool, int, str]]:
    found = []
    for array in arrays:
        tensor = tensor_behind(array)
        assert tensor is not None
        found.append((type(array).__name__, bool(array.flags.writeable), sum_of(array), str(tensor.memory)))
    return found


def double_block(block: Any) -> tm.Tensor:
    """A block as a tensor of ours, whatever it came as."""
    made = tm.empty(block.shape, "float64")
    made.numpy()[...] = 2 * np.asarray(block)
    return made


def total(tensor: tm.Tensor) -> int:
    return int(tensor.numpy().sum(dtype="int64"))


def stats_here() -> dict[str, Any] | None:
    stack = installed()
    return None if stack is None else stack.stats().as_dict()


def handed_over() -> int:
    return handover.counts.collected


def page_address(dask_worker: Any) -> str:
    return f"http://127.0.0.1:{dask_worker.http_server.port}/metrics"
