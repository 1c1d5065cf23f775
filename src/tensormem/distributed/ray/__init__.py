"""Owns: tensormem on Ray. Each name is loaded when it is first used; Ray itself is imported by what needs it.

Must not know: the other engine.
"""

from tensormem.lazy_names import load_name
from tensormem.public_functions import explain_misspellings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.distributed.ray.evictable_cache import EvictableCache as EvictableCache
    from tensormem.distributed.ray.looking import cluster_stats as cluster_stats
    from tensormem.distributed.ray.registering import register_transport as register_transport
    from tensormem.distributed.ray.registering import transport_counts as transport_counts
    from tensormem.distributed.ray.shared_tensor import SharedTensor as SharedTensor
    from tensormem.distributed.ray.shared_tensor import share as share
    from tensormem.distributed.ray.shared_tensor import tensor_of as tensor_of
    from tensormem.distributed.ray.worker_setup import memory_options as memory_options
    from tensormem.distributed.ray.worker_setup import runtime_env as runtime_env
    from tensormem.distributed.ray.worker_setup import setup as setup
    from tensormem.distributed.ray.worker_setup import teardown as teardown

__all__ = [
    "EvictableCache",
    "SharedTensor",
    "cluster_stats",
    "memory_options",
    "register_transport",
    "runtime_env",
    "setup",
    "share",
    "teardown",
    "tensor_of",
    "transport_counts",
]

# Where each name comes from.
_HOMES = {
    "EvictableCache": "evictable_cache",
    "SharedTensor": "shared_tensor",
    "cluster_stats": "looking",
    "memory_options": "worker_setup",
    "register_transport": "registering",
    "runtime_env": "worker_setup",
    "setup": "worker_setup",
    "share": "shared_tensor",
    "teardown": "worker_setup",
    "tensor_of": "shared_tensor",
    "transport_counts": "registering",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load_name(__name__, name, _HOMES)
    explain_misspellings(globals(), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
