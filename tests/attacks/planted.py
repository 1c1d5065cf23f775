"""Owns: cases that end badly on purpose: the proof that the runner sees a crash, a hang, a leak and a wrong answer."""

from __future__ import annotations

import ctypes
import sys
import time
from random import Random

from attacks.outcome import Leak, Outcome, Wrong
from attacks.suite import Note, Suite
from tensormem import errors

__all__ = ["SUITE"]


def _raise_silently() -> None:
    class Noisy:
        def __del__(self) -> None:
            raise RuntimeError("nobody catches this")

    Noisy()


def _case(draw: Random, note: Note) -> Outcome:
    number = next(seed for seed in range(40) if Random(f"planted:{seed}").getstate() == draw.getstate())
    note(f"case {number}")
    if number == 21:
        raise errors.InvalidSize(0)
    if number == 22:
        raise KeyError(number)
    if number == 3:
        ctypes.string_at(8)
    if number == 5:
        time.sleep(1000)
    if number == 7:
        raise Wrong("other bytes")
    if number == 9:
        _raise_silently()
    if number == 11:
        raise Leak("1 descriptor")
    sys.stdout.flush()
    return Outcome.FINE


SUITE = Suite("planted", "The runner sees every kind of mistake.", _case, share=0, batch=20)
