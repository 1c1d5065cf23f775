"""Owns: tensormem on Ray. Each name is loaded when it is first used; Ray itself is imported by what needs it.

Must not know: the other engine.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.distributed.ray.registering import register_transport as register_transport
    from tensormem.distributed.ray.registering import transport_counts as transport_counts
    from tensormem.distributed.ray.shared_tensor import SharedTensor as SharedTensor
    from tensormem.distributed.ray.shared_tensor import share as share
    from tensormem.distributed.ray.shared_tensor import tensor_of as tensor_of

__all__ = ["SharedTensor", "register_transport", "share", "tensor_of", "transport_counts"]

# Where each name comes from.
_HOMES = {
    "SharedTensor": "shared_tensor",
    "register_transport": "registering",
    "share": "shared_tensor",
    "tensor_of": "shared_tensor",
    "transport_counts": "registering",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
