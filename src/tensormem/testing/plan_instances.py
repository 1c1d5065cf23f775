"""Owns: planning instances with known answers: a full rectangle of time and memory, cut into blocks.

The pieces of a rectangle fit into its height by construction, and at every moment they fill all of it, so the height is
the optimum and every section is tight: the hardest kind for a planner. `Cut` says how a rectangle is cut.
"""

import random
from dataclasses import dataclass
from enum import StrEnum

from tensormem.trace import Lifetime


class Cut(StrEnum):
    """The shape that most pieces have."""

    MANY_SHORT = "many short"
    FEW_LONG = "few long"
    NESTED = "nested"
    STAIRCASE = "staircase"
    PINWHEEL = "pinwheel"


@dataclass(frozen=True)
class _Piece:
    start: int
    end: int
    bottom: int
    top: int

    @property
    def area(self) -> int:
        return (self.end - self.start) * (self.top - self.bottom)


# How often a piece is cut across time rather than across memory.
_ACROSS_TIME = {Cut.MANY_SHORT: 0.7, Cut.FEW_LONG: 0.2, Cut.NESTED: 0.45, Cut.STAIRCASE: 0.5, Cut.PINWHEEL: 0.5}


def cut_rectangle(
    blocks: int, *, cut: Cut = Cut.PINWHEEL, capacity: int = 1 << 20, duration: int = 2000, step: int = 1, seed: int = 1
) -> list[Lifetime]:
    """About so many blocks whose lowest plan has exactly the height `capacity`; sizes are multiples of `step`.

    >>> from tensormem.trace import peak_load
    >>> peak_load(cut_rectangle(60, cut=Cut.STAIRCASE, seed=7))
    1048576
    """
    source = random.Random(f"{cut} {seed}")
    pieces = _staircase(source, duration, capacity // step) if cut is Cut.STAIRCASE else []
    pieces = pieces or [_Piece(0, duration, 0, capacity // step)]
    misses = 0
    while len(pieces) < blocks and misses < 4 * blocks:
        place = max(source.sample(range(len(pieces)), min(4, len(pieces))), key=lambda at: pieces[at].area)
        parts = _parts(source, pieces[place], cut)
        if not parts:
            misses += 1
            continue
        pieces[place : place + 1] = parts
    source.shuffle(pieces)
    return [
        Lifetime(str(number), piece.start, piece.end, (piece.top - piece.bottom) * step)
        for number, piece in enumerate(pieces)
    ]


def perturbed(lifetimes: list[Lifetime], *, share: float = 0.05, seed: int = 1) -> list[Lifetime]:
    """The same instance with this share of its blocks shortened by a tenth: it fits still, and fits less tightly."""
    source = random.Random(seed)
    chosen = set(source.sample(range(len(lifetimes)), int(share * len(lifetimes))))
    return [
        each._replace(size=max(1, each.size - each.size // 10)) if place in chosen else each
        for place, each in enumerate(lifetimes)
    ]


def _staircase(source: random.Random, duration: int, height: int) -> list[_Piece]:
    """Steps that start one after the other and reach the end, with what lies under them before they start."""
    count = 12
    starts = sorted(source.sample(range(1, duration), count))
    edges = [0, *sorted(source.sample(range(1, height), count)), height]
    before = [_Piece(0, start, edges[n], edges[n + 1]) for n, start in enumerate(starts)]
    after = [_Piece(start, duration, edges[n], edges[n + 1]) for n, start in enumerate(starts)]
    return [*before, *after, _Piece(0, duration, edges[count], height)]


def _parts(source: random.Random, piece: _Piece, cut: Cut) -> list[_Piece]:
    if (cut is Cut.PINWHEEL and source.random() < 0.5) or (cut is Cut.NESTED and source.random() < 0.35):
        return _pinwheel(source, piece)
    if source.random() < _ACROSS_TIME[cut]:
        if piece.end - piece.start < 2:
            return []
        at = source.randrange(piece.start + 1, piece.end)
        return [_Piece(piece.start, at, piece.bottom, piece.top), _Piece(at, piece.end, piece.bottom, piece.top)]
    if piece.top - piece.bottom < 2:
        return []
    at = source.randrange(piece.bottom + 1, piece.top)
    return [_Piece(piece.start, piece.end, piece.bottom, at), _Piece(piece.start, piece.end, at, piece.top)]


def _pinwheel(source: random.Random, piece: _Piece) -> list[_Piece]:
    """Four pieces around a fifth: no straight cut separates them."""
    if piece.end - piece.start < 4 or piece.top - piece.bottom < 4:
        return []
    left, right = sorted(source.sample(range(piece.start + 1, piece.end), 2))
    low, high = sorted(source.sample(range(piece.bottom + 1, piece.top), 2))
    return [
        _Piece(piece.start, right, piece.bottom, low),
        _Piece(right, piece.end, piece.bottom, high),
        _Piece(left, piece.end, high, piece.top),
        _Piece(piece.start, left, low, piece.top),
        _Piece(left, right, low, high),
    ]
