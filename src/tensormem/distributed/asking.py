"""Owns: which engine is asked for what its cluster has.

Must not know: how it is asked.
"""

from __future__ import annotations

from tensormem.distributed.cluster_table import ClusterStats
from tensormem.errors import DistributedError

__all__ = ["cluster_stats"]


def cluster_stats(client: object = None, *, timeout: float = 10.0) -> ClusterStats:
    """What every worker of the cluster has now: of the Dask cluster of `client`, or of the Ray cluster that this
    process is connected to.
    """
    if client is not None:
        from tensormem.distributed.dask.looking import cluster_stats as of_dask

        return of_dask(client, timeout=timeout)
    try:
        import ray
    except ImportError:
        raise DistributedError("give a Dask client, or install Ray and connect to a cluster") from None
    if not ray.is_initialized():
        raise DistributedError("give a Dask client, or connect to a Ray cluster with ray.init first")
    from tensormem.distributed.ray.looking import cluster_stats as of_ray

    return of_ray(timeout=timeout)
