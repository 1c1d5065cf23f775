"""What runs in the workers of a Dask cluster."""

from typing import Any

import tensormem as tm
from tensormem.distributed import installed
from tensormem.distributed.dask import handover

_kept: list[tm.Tensor] = []


def keep(nbytes: int) -> None:
    _kept.append(tm.empty(nbytes, "uint8"))


def drop_kept() -> None:
    _kept.clear()


def make(value: int, nbytes: int) -> tm.Tensor:
    return tm.full((nbytes,), value, "uint8")


def total(tensor: tm.Tensor) -> int:
    return int(tensor.numpy().sum(dtype="int64"))


def stats_here() -> dict[str, Any] | None:
    stack = installed()
    return None if stack is None else stack.stats().as_dict()


def handed_over() -> int:
    return handover.counts.collected


def page_address(dask_worker: Any) -> str:
    return f"http://127.0.0.1:{dask_worker.http_server.port}/metrics"
