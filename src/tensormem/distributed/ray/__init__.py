"""Owns: tensormem on Ray. Each name is loaded when it is first used; Ray itself is imported by what needs it.

Must not know: the other engine.
"""

from importlib import import_module

__all__: list[str] = []

# Where each name comes from.
_HOMES: dict[str, str] = {}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
