"""Owns: `TensorMemory`, the value that names a kind of allocation.

Must not know: how a kind is made, or whether this machine can.
"""

from __future__ import annotations

from tensormem.errors import InvalidMemoryType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

__all__ = ["TensorMemory"]

_known: dict[str, TensorMemory] = {}


class TensorMemory(str):
    """What kind of allocation backs a tensor, and so how it can be shared: `mem`, `shm`, `dma` or `pbo`.

    It is its own text, exactly, both ways; anything else is `InvalidMemoryType`. One object per kind.

    >>> TensorMemory("shm") is TensorMemory.SHM, str(TensorMemory.SHM)
    (True, 'shm')
    """

    __slots__ = ()
    MEM: ClassVar[TensorMemory]
    SHM: ClassVar[TensorMemory]
    DMA: ClassVar[TensorMemory]
    PBO: ClassVar[TensorMemory]

    def __new__(cls, text: object) -> TensorMemory:
        """The one object for this text."""
        known = _known.get(text) if isinstance(text, str) else None
        if known is None:
            raise InvalidMemoryType(text)
        return known

    @classmethod
    def introduce(cls, text: object) -> TensorMemory:
        """The value of a kind that somebody else adds; the text is one word in lower case."""
        if not (isinstance(text, str) and text.isidentifier() and text.isascii() and text == text.lower()):
            raise InvalidMemoryType(text, what="a kind is one word in lower case")
        # setdefault is atomic: threads that race for the same kind all get the first one's object.
        return _known.setdefault(text, str.__new__(cls, text))

    def __repr__(self) -> str:
        return f"tm.TensorMemory({str(self)!r})"

    def __str__(self) -> str:
        return self[:]

    def __reduce__(self) -> tuple[type[TensorMemory], tuple[str]]:
        return TensorMemory, (str(self),)


TensorMemory.MEM = TensorMemory.introduce("mem")
TensorMemory.SHM = TensorMemory.introduce("shm")
TensorMemory.DMA = TensorMemory.introduce("dma")
TensorMemory.PBO = TensorMemory.introduce("pbo")
