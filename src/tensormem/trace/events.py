"""Owns: what a trace consists of, as values: events, who reports them, stacks.

Must not know: files, or where a trace came from.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["Event", "EventKind", "Frame", "Reporter"]


class EventKind(StrEnum):
    """What happened; plain text is as good.

    >>> EventKind("allocate") is EventKind.ALLOCATE
    True
    """

    ALLOCATE = "allocate"
    DEALLOCATE = "deallocate"
    MAP = "map"
    UNMAP = "unmap"
    MOVE = "move"
    COPY = "copy"
    USE = "use"
    FAIL = "fail"
    TAG_BEGIN = "tag_begin"
    TAG_END = "tag_end"
    COUNTER = "counter"
    CREATED = "created"
    DESTROYED = "destroyed"

    def __repr__(self) -> str:
        return repr(self.value)


class Event(NamedTuple):
    """One thing that happened. Fields that mean nothing for its kind are 0 or "".

    `other` is the alignment of an allocation, the address before a move, the source of a copy, the value of a counter
    (whose name is the tag), the kind that failed; `detail` a native code: of a failure, an access, the state after a
    deallocation. `depth` says how many resources stand above the one that reports: 0 is what the program asked for.

    >>> Event(time_ns=5, kind=EventKind.ALLOCATE, address=4096, nbytes=64, resource=2, tag="kv").is_outermost
    True
    """

    time_ns: int
    kind: EventKind
    address: int = 0
    nbytes: int = 0
    generation: int = 0
    other: int = 0
    stream: int = 0
    resource: int = 0
    tag: str = ""
    stack: int = 0
    depth: int = 0
    detail: int = 0
    thread: int = 0

    @property
    def is_outermost(self) -> bool:
        """Whether the program asked for it, and not a resource on its behalf."""
        return self.depth == 0


class Reporter(NamedTuple):
    """Who reports: a resource, an address range, a kind of memory. `below` is the id of its upstream; 0 for none. One
    that is `foreign` is a library whose memory was only watched, and may keep what it has to the end.

    >>> str(Reporter(3, 1, "PoolMemoryResource", "main"))
    'PoolMemoryResource #3'
    """

    id: int
    below: int
    name: str
    space: str
    foreign: bool = False

    def __str__(self) -> str:
        return f"{self.name or 'resource'} #{self.id}"


class Frame(NamedTuple):
    """One call in a stack."""

    file: str
    line: int
    function: str
