"""Owns: lifetimes: how long each block lived and how large it was, and the `id,lower,upper,size` file that holds them.

A lifetime is half-open: a block lives from `lower` up to and without `upper`, so one that ends at 5 and one that
begins at 5 may share bytes. Times are whole numbers of any kind: event numbers, microseconds.
Must not know: who recorded them, or who packs them.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tensormem.errors import InvalidLifetimes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TextIO

__all__ = ["Lifetime", "check_lifetimes", "peak_load", "read_lifetimes", "write_lifetimes"]

COLUMNS = ("id", "lower", "upper", "size")
_LIMIT = 2**63 - 1


class Lifetime(NamedTuple):
    """One block: who it was, when it lived, and how many bytes it had.

    >>> Lifetime("weights", 0, 10, 4096).duration
    10
    """

    id: str
    lower: int
    upper: int
    size: int

    @property
    def duration(self) -> int:
        """How long it lived."""
        return self.upper - self.lower

    def overlaps(self, other: Lifetime) -> bool:
        """Whether there was a moment at which both lived."""
        return self.lower < other.upper and other.lower < self.upper


def check_lifetimes(lifetimes: Iterable[Lifetime], source: str = "") -> None:
    """Raise `InvalidLifetimes` for one that ends before it begins, is empty or too large, or whose id comes twice.

    The `line` of the error counts from 2, as the lines of a file with a header do.

    >>> check_lifetimes([Lifetime("a", 0, 4, 16), Lifetime("b", 4, 4, 16)])
    Traceback (most recent call last):
    ...
    tensormem.errors.InvalidLifetimes: ...
    """
    seen: dict[str, int] = {}
    for line, lifetime in enumerate(lifetimes, 2):
        wrong = _mistake(lifetime)
        if wrong is None and seen.setdefault(lifetime.id, line) != line:
            wrong = f"the id {lifetime.id!r:.40} is that of line {seen[lifetime.id]} already"
        if wrong is not None:
            raise InvalidLifetimes(source, line, what=wrong)


def _mistake(lifetime: Lifetime) -> str | None:
    if not isinstance(lifetime, Lifetime):
        return f"a lifetime is (id, lower, upper, size), not {type(lifetime).__name__}"
    _, lower, upper, size = lifetime
    if not -_LIMIT <= lower < upper <= _LIMIT:
        return f"it lives from {lower} up to {upper}: the first has to be before the second"
    if not 0 < size <= _LIMIT:
        return f"its size is {size}: a block has at least one byte and at most {_LIMIT}"
    return None


def peak_load(lifetimes: Iterable[Lifetime]) -> int:
    """The most bytes that live at one moment: no packing can be lower.

    >>> peak_load([Lifetime("a", 0, 2, 10), Lifetime("b", 1, 3, 20), Lifetime("c", 2, 4, 5)])
    30
    """
    steps: dict[int, int] = {}
    for line, lifetime in enumerate(lifetimes, 2):
        wrong = _mistake(lifetime)
        if wrong is not None:
            raise InvalidLifetimes("", line, what=wrong)
        _, lower, upper, size = lifetime
        steps[lower] = steps.get(lower, 0) + size
        steps[upper] = steps.get(upper, 0) - size
    peak = load = 0
    for moment in sorted(steps):
        load += steps[moment]
        peak = max(peak, load)
    return peak


def read_lifetimes(source: str | Path | TextIO) -> list[Lifetime]:
    """The lifetimes of a file with the header `id,lower,upper,size`; anything else in it is `InvalidLifetimes`.

    >>> import io
    >>> read_lifetimes(io.StringIO("id,lower,upper,size\\na,0,4,16\\n"))
    [Lifetime(id='a', lower=0, upper=4, size=16)]
    """
    if not isinstance(source, (str, Path)):
        return _parse(source, getattr(source, "name", "") or "")
    # One character per byte: a foreign file can be refused by line, whatever it holds.
    with open(source, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return _parse(file, str(source))


def _parse(file: TextIO, name: str) -> list[Lifetime]:
    lifetimes = list(_rows(file, name))
    check_lifetimes(lifetimes, name)
    return lifetimes


def _rows(file: TextIO, name: str) -> Iterator[Lifetime]:
    rows = csv.reader(file, strict=True)
    try:
        header = next(rows, [])
        if tuple(header) != COLUMNS:
            raise InvalidLifetimes(name, 1, what=f"the first line is {','.join(header)!r:.80}, not {','.join(COLUMNS)}")
        for row in rows:
            yield _lifetime(row, name, rows.line_num)
    except csv.Error as error:
        raise InvalidLifetimes(name, rows.line_num, what=str(error)) from None


def _lifetime(row: Sequence[str], name: str, line: int) -> Lifetime:
    if len(row) != len(COLUMNS):
        raise InvalidLifetimes(name, line, what=f"it has {len(row)} columns instead of {len(COLUMNS)}")
    if not row[0].isprintable() or not row[0]:
        raise InvalidLifetimes(name, line, what=f"{row[0]!r:.40} is not an id")
    return Lifetime(row[0], *(_number(text, name, line) for text in row[1:]))


def _number(text: str, name: str, line: int) -> int:
    # Plain digits alone: int() would take "1_0" and digits of other scripts.
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise InvalidLifetimes(name, line, what=f"{text!r:.40} is not a whole number of at most 19 digits")
    return int(text)


def write_lifetimes(lifetimes: Iterable[Lifetime], target: str | Path | TextIO) -> None:
    """Write them so that `read_lifetimes` gives the same back. A file that is there is replaced.

    >>> import io
    >>> text = io.StringIO()
    >>> write_lifetimes([Lifetime("a", 0, 4, 16)], text)
    >>> text.getvalue()
    'id,lower,upper,size\\na,0,4,16\\n'
    """
    kept = list(lifetimes)
    check_lifetimes(kept)
    if isinstance(target, (str, Path)):
        with open(target, "w", encoding="utf-8", newline="") as file:
            _write(kept, file)
    else:
        _write(kept, target)


def _write(lifetimes: Sequence[Lifetime], file: TextIO) -> None:
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows(lifetimes)
