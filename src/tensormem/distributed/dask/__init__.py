"""Owns: tensormem on Dask. Each name is loaded when it is first used; Dask itself is imported by what needs it.

Must not know: the other engine.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.distributed.dask.handover_plugin import HandOverPlugin as HandOverPlugin
    from tensormem.distributed.dask.registration import register_serializers as register_serializers

__all__ = ["HandOverPlugin", "register_serializers"]

# Where each name comes from.
_HOMES = {
    "HandOverPlugin": "handover_plugin",
    "register_serializers": "registration",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
