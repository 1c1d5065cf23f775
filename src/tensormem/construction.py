"""Owns: `constructed_once`, by which a second `__init__` of an owner is refused. Compiled classes have the same in
`_core/construction.hpp`.

A second `__init__` would replace what views, threads and other processes still use. Must not know: any class.
"""

import functools
from typing import Any, TypeVar

from tensormem import errors

__all__ = ["begin_construction", "constructed_once"]

_T = TypeVar("_T")
_MARK = "_construction"


def begin_construction(owner: object, of: type) -> None:
    """Note that `owner` is being constructed as an `of`; `InvalidArgument` if it was before. For what `__new__` made.

    >>> class Owner: ...
    >>> owner = Owner()
    >>> begin_construction(owner, Owner)
    >>> begin_construction(owner, Owner)
    Traceback (most recent call last):
    ...
    tensormem.errors.InvalidArgument: ...
    """
    token = object()
    held = getattr(owner, "__dict__", None)
    if held is None:  # slots
        known = getattr(owner, _MARK, token)
        object.__setattr__(owner, _MARK, known)
    else:
        known = held.setdefault(f"{_MARK}_{of.__qualname__}", token)  # one step, also for two threads
    if known is not token:
        raise errors.InvalidArgument(
            f"this {type(owner).__name__} exists already, and __init__ runs once; make a new one"
        )


def constructed_once(cls: type[_T]) -> type[_T]:
    """A class decorator: `__init__` runs once for an object, and stays refused when it failed.

    >>> @constructed_once
    ... class Owner:
    ...     def __init__(self, name):
    ...         self.name = name
    >>> owner = Owner("first")
    >>> owner.__init__("second")
    Traceback (most recent call last):
    ...
    tensormem.errors.InvalidArgument: ...
    >>> owner.name
    'first'
    """
    construct = cls.__init__

    @functools.wraps(construct)
    def once(self: Any, *args: Any, **kwargs: Any) -> None:
        begin_construction(self, cls)
        construct(self, *args, **kwargs)

    setattr(cls, "__init__", once)  # noqa: B010 - mypy lets nobody assign it
    return cls
