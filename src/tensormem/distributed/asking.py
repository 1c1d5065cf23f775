"""Owns: which engine is asked: for what its cluster has, and for the clocks of its nodes.

Must not know: how it is asked.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

from tensormem.distributed.clocks import ClockOffset
from tensormem.distributed.cluster_table import ClusterStats
from tensormem.distributed.process_stack import trace_name
from tensormem.errors import DistributedError

__all__ = ["cluster_stats", "write_clocks"]


def cluster_stats(client: object = None, *, timeout: float = 30.0) -> ClusterStats:
    """What every worker of the cluster has now: of the Dask cluster of `client`, or of the Ray cluster that this
    process is connected to.
    """
    stats: ClusterStats = _looking(client).cluster_stats(*(() if client is None else (client,)), timeout=timeout)
    return stats


def write_clocks(path: str | PathLike[str], client: object = None) -> dict[str, ClockOffset]:
    """Measure the clocks of all nodes against this process's, and write what `tensormem merge --clocks` reads: the
    offset of each worker's recording, by the name of its file. Gives the offsets by node.
    """
    offsets: dict[str, ClockOffset] = _looking(client).clock_offsets(*(() if client is None else (client,)))
    rows = {
        trace_name(row.worker, row.pid): offsets[row.node]._asdict()
        for row in cluster_stats(client).rows
        if row.node in offsets
    }
    Path(path).write_text(json.dumps({"version": 1, "offsets": rows}, indent=2) + "\n")
    return offsets


def _looking(client: object) -> Any:
    if client is not None:
        from tensormem.distributed.dask import looking as of_dask

        return of_dask
    try:
        import ray
    except ImportError:
        raise DistributedError("give a Dask client, or install Ray and connect to a cluster") from None
    if not ray.is_initialized():
        raise DistributedError("give a Dask client, or connect to a Ray cluster with ray.init first")
    from tensormem.distributed.ray import looking as of_ray

    return of_ray
