"""Owns: tensormem on more than one machine: how tensors travel through Ray and Dask, and how their workers are set up.

There is no protocol of our own between nodes: the engines carry the bytes. Inside a node memory is handed over by
descriptor. A module is loaded when it is first named, and its engine when it is first used. Must not know: reports.
"""

from tensormem.lazy_names import load_name
from tensormem.public_functions import explain_misspellings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.distributed import dask as dask
    from tensormem.distributed import ray as ray
    from tensormem.distributed.asking import cluster_stats, write_clocks
    from tensormem.distributed.budget import NodeBudget
    from tensormem.distributed.cluster_node import Node
    from tensormem.distributed.cluster_table import ClusterStats
    from tensormem.distributed.declaration import Declaration, PoolKind
    from tensormem.distributed.process_stack import installed
    from tensormem.distributed.worker_stack import WorkerStack
    from tensormem.distributed.worker_stats import WorkerStats

__all__ = [
    "ClusterStats",
    "Declaration",
    "Node",
    "NodeBudget",
    "PoolKind",
    "WorkerStack",
    "WorkerStats",
    "cluster_stats",
    "dask",
    "installed",
    "ray",
    "write_clocks",
]

# Where each name that is not a module comes from.
_HOMES = {
    **dict.fromkeys(("Declaration", "PoolKind"), "declaration"),
    "ClusterStats": "cluster_table",
    "Node": "cluster_node",
    "NodeBudget": "budget",
    "WorkerStack": "worker_stack",
    "WorkerStats": "worker_stats",
    **dict.fromkeys(("cluster_stats", "write_clocks"), "asking"),
    "installed": "process_stack",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load_name(__name__, name, _HOMES)
    explain_misspellings(globals(), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
