"""Owns: what a space and a device have in common: a kind with a number, as an immutable value with one object each.

Must not know: which kinds there are.
"""

from __future__ import annotations

from functools import total_ordering
from operator import index

from tensormem.errors import InvalidSpace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enum import StrEnum
    from typing import NoReturn, Self, TypeVar

    Kind = TypeVar("Kind", bound=StrEnum)

_MAX_ID = 2**31 - 1  # DLPack's device_id is an int32
_interned: dict[tuple[type, str, int], Place] = {}


@total_ordering
class Place:
    """A kind and a number. Ordered among its own class; copies and pickles of a value are the value itself."""

    __slots__ = ("_order", "device_id", "kind")
    _order: tuple[int, int]
    device_id: int
    kind: StrEnum

    @classmethod
    def _intern(cls, kind: StrEnum, device_id: object) -> Self:
        number = checked_id(kind, device_id)
        known = _interned.get((cls, kind, number))
        if known is None:
            place = object.__new__(cls)
            order = list(type(kind)).index(kind), number
            for slot, value in (("_order", order), ("device_id", number), ("kind", kind)):
                object.__setattr__(place, slot, value)
            # setdefault is atomic: threads that race for the same value all get the first one's object.
            known = _interned.setdefault((cls, kind, number), place)
        assert isinstance(known, cls)
        return known

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} cannot be changed: {name}")

    def __lt__(self, other: object) -> bool:
        return self._order < other._order if isinstance(other, type(self)) else NotImplemented

    def __reduce__(self) -> tuple[type[Place], tuple[str, int]]:
        return type(self), (str(self.kind), self.device_id)


def find_kind(kinds: dict[str, Kind], kind: object) -> Kind:
    """The kind that the text `kind` names."""
    known = kinds.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise InvalidSpace(kind)
    return known


def checked_id(kind: str, device_id: object) -> int:
    """`device_id` as an int, if it can be the number of a device."""
    try:
        number = -1 if isinstance(device_id, bool) else index(device_id)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= _MAX_ID:
        raise InvalidSpace(f"{kind}:{device_id!r:.40}", what=f"ids are whole numbers from 0 to {_MAX_ID}")
    return number
