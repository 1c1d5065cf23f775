"""Owns: what public functions and classes written in Python have in common with compiled ones: a call that misspells a
keyword is told the nearest one. Python does so itself from 3.13 on, and then nothing is done here.

Functions are replaced where they are public; modules inside the package call each other's directly, and pay nothing.
Must not know: which functions there are, but those of the modules below it.
"""

from __future__ import annotations

import copyreg
import functools
import sys
from types import FunctionType

from tensormem import config, dtypes, errors, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["explain_misspellings"]

_PACKAGE = __name__.partition(".")[0]
_SPECIAL = {"__call__", "__init__", "__new__"}
_BUILT_IN = sys.version_info >= (3, 13)
_ASYNCHRONOUS = 0x80 | 0x200  # of code: a coroutine, an asynchronous generator; others ask functions about it

_done: set[type] = set()


def explain_misspellings(namespace: dict[str, Any], *names: str) -> None:
    """Let the public functions and classes of a module, whose `globals()` it gives, explain misspelt keywords.

    Without `names`, all that are public.

    >>> import tensormem as tm
    >>> tm.image(4, 4, fromat="rgb")
    Traceback (most recent call last):
    ...
    TypeError: image() got an unexpected keyword argument 'fromat'. Did you mean 'format'?
    """
    if _BUILT_IN:
        return
    package = vars(sys.modules[_PACKAGE])
    for name in names or namespace.get("__all__") or [each for each in namespace if not each.startswith("_")]:
        value = namespace.get(name)
        if isinstance(value, type):
            _explain_class(value)
        elif isinstance(value, FunctionType) and _is_ours(value):
            namespace[name] = _explained(value)
            if package.get(name) is value:  # it was loaded before this could be done
                package[name] = namespace[name]


def _is_ours(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] == _PACKAGE


def _explain_class(cls: type) -> None:
    for owner in cls.__mro__:
        if owner not in _done and _is_ours(owner):
            _done.add(owner)
            for name, member in list(vars(owner).items()):
                _explain_member(owner, name, member)


def _explain_member(owner: type, name: str, member: Any) -> None:
    if name.startswith("_") and name not in _SPECIAL:
        return
    kind = type(member) if isinstance(member, classmethod | staticmethod) else None
    function = member if kind is None else member.__func__
    if isinstance(function, FunctionType) and _takes_more_than_self(function):
        explained = _explained(function)
        setattr(owner, name, explained if kind is None else kind(explained))


def _takes_more_than_self(function: Any) -> bool:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    return code.co_argcount + code.co_kwonlyargcount > 1 and not code.co_flags & _ASYNCHRONOUS


def _explained(function: Any) -> Any:
    return functools.update_wrapper(_maker()(function), function)


@functools.cache
def _maker() -> Any:
    # Not before it is needed: loading the core may load what watches over the process, which needs this module whole.
    from tensormem._core import ExplainedFunction, explained_function

    copyreg.pickle(ExplainedFunction, _reduce)
    return explained_function


def _reduce(function: Any) -> str | tuple[Any, tuple[Any]]:
    """For pickle: by its name, where that is its own, else by the function inside."""
    home: Any = sys.modules.get(function.__module__)
    try:
        found = functools.reduce(getattr, function.__qualname__.split("."), home)
    except AttributeError:
        found = None
    return function.__qualname__ if found is function else (_explained, (function.__wrapped__,))


for _lower in (config, dtypes, errors, units):
    explain_misspellings(vars(_lower))
