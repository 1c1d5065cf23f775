"""Owns: the names behind the numbers of a trace: tags, threads, who reports, stacks.

Must not know: events.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from tensormem.errors import TraceError
from tensormem.trace.events import Frame, Reporter
from tensormem.trace.format import DEFINITION, DefinitionKind

_LENGTH = struct.Struct("<I")


@dataclass
class Names:
    """What the numbers of one trace stand for."""

    tags: dict[int, str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    reporters: dict[int, Reporter] = field(default_factory=dict)
    frames: dict[int, Frame] = field(default_factory=dict)
    stacks: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def stack(self, number: int) -> tuple[Frame, ...]:
        """The calls of a stack, the innermost first; () when it has none."""
        return tuple(self.frames[frame] for frame in self.stacks.get(number, ()) if frame in self.frames)

    def space(self, resource: int) -> str:
        """The space of what a resource hands out; "unknown" when nobody said."""
        reporter = self.reporters.get(resource)
        return (reporter.space if reporter is not None else "") or "unknown"

    def resource(self, number: int) -> str:
        """The name of who reports."""
        reporter = self.reporters.get(number)
        return str(reporter) if reporter is not None else f"resource #{number}"

    def learn(self, data: memoryview, count: int, source: str, offset: int) -> None:
        """Take up the definitions of a chunk that begins at `offset` of the file."""
        seen = 0
        for kind, number, numbers, texts in _definitions(data, source, offset):
            seen += 1
            self._learn_one(kind, number, numbers, texts)
        if seen != count:
            raise TraceError(source, offset, what=f"a chunk has {seen} definitions and says {count}")

    def _learn_one(self, kind: int, number: int, numbers: tuple[int, ...], texts: tuple[str, ...]) -> None:
        # A newer writer may say more: what is missing here is passed over, what is too much as well.
        first = texts[0] if texts else ""
        second = texts[1] if len(texts) > 1 else ""
        if kind == DefinitionKind.TAG:
            self.tags[number] = first
        elif kind == DefinitionKind.THREAD:
            self.threads[number] = first or self.threads.get(number, "")
        elif kind == DefinitionKind.RESOURCE:
            self.reporters[number] = Reporter(
                number, numbers[0] if numbers else 0, first, second, foreign=len(numbers) > 1 and numbers[1] == 1
            )
        elif kind == DefinitionKind.FRAME:
            self.frames[number] = Frame(first, numbers[0] if numbers else 0, second)
        elif kind == DefinitionKind.STACK:
            self.stacks[number] = numbers


def _definitions(
    data: memoryview, source: str, offset: int
) -> Iterator[tuple[int, int, tuple[int, ...], tuple[str, ...]]]:
    at, end = 0, len(data)
    try:
        while at < end:
            kind, number_count, text_count, _, number = DEFINITION.unpack_from(data, at)
            at += DEFINITION.size
            numbers = struct.unpack_from(f"<{number_count}I", data, at)
            at += 4 * number_count
            texts = []
            for _ in range(text_count):
                (length,) = _LENGTH.unpack_from(data, at)
                at += _LENGTH.size
                if length > end - at:
                    raise TraceError(source, offset + at, what=f"a text of {length} bytes ends outside its chunk")
                texts.append(bytes(data[at : at + length]).decode("utf-8", "replace"))
                at += length
            yield kind, number, numbers, tuple(texts)
    except struct.error:
        raise TraceError(source, offset + at, what="a definition ends outside its chunk") from None
