"""Owns: tensormem on Dask. Each name is loaded when it is first used; Dask itself is imported by what needs it.

Must not know: the other engine.
"""

from tensormem.lazy_names import load_name
from tensormem.public_functions import explain_misspellings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.distributed.dask.cluster_setup import setup as setup
    from tensormem.distributed.dask.handover_plugin import HandOverPlugin as HandOverPlugin
    from tensormem.distributed.dask.looking import cluster_stats as cluster_stats
    from tensormem.distributed.dask.plugin import TensormemPlugin as TensormemPlugin
    from tensormem.distributed.dask.registration import register_serializers as register_serializers

__all__ = [
    "HandOverPlugin",
    "TensormemPlugin",
    "cluster_stats",
    "register_serializers",
    "setup",
]

# Where each name comes from.
_HOMES = {
    "HandOverPlugin": "handover_plugin",
    "TensormemPlugin": "plugin",
    "cluster_stats": "looking",
    "register_serializers": "registration",
    "setup": "cluster_setup",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load_name(__name__, name, _HOMES)
    explain_misspellings(globals(), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
