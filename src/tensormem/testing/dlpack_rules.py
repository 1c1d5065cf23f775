"""Owns: what a rule is, how one is run, and what is found: kept, broken, or not applicable.

Must not know: any rule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["Consumer", "Finding", "NotApplicable", "Producer", "Rule", "RuleBroken", "expect", "run_rule"]


class NotApplicable(Exception):
    """The subject does not have what the rule is about, and need not.

    >>> raise NotApplicable("it has no read-only tensors")
    Traceback (most recent call last):
    tensormem.testing.dlpack_rules.NotApplicable: it has no read-only tensors
    """


class RuleBroken(AssertionError):
    """The subject broke the rule.

    >>> expect(False, "strides are NULL")
    Traceback (most recent call last):
    tensormem.testing.dlpack_rules.RuleBroken: strides are NULL
    """


def expect(condition: object, otherwise: str) -> None:
    """Raise `RuleBroken` unless the condition holds."""
    if not condition:
        raise RuleBroken(otherwise)


@dataclass(frozen=True)
class Producer:
    """A producer under test: how to make a fresh tensor of float32 [[0, 1, 2], [3, 4, 5]], and the same read-only.

    >>> import tensormem as tm
    >>> Producer("ours", lambda: tm.wrap(memoryview(bytearray(24)).cast("f", (2, 3)))).make().shape
    (2, 3)
    """

    name: str
    make: Callable[[], Any]
    make_readonly: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Consumer:
    """A consumer under test: `take` imports a producer, `read` gives nested lists, `writable` tells who may.

    >>> import tensormem as tm
    >>> Consumer("ours", tm.from_dlpack, tm.Tensor.tolist).read(tm.zeros(1))
    [0.0]
    """

    name: str
    take: Callable[[Any], Any]
    read: Callable[[Any], Any]
    writable: Callable[[Any], bool] | None = None


Subject = TypeVar("Subject", Producer, Consumer)


@dataclass(frozen=True)
class Rule:
    """One sentence of the standard, and how to check it.

    >>> Rule("holds", lambda subject: None, dangerous=False).sentence
    'holds'
    """

    sentence: str
    check: Callable[[Any], None]
    dangerous: bool = False
    """Whether breaking it may bring the process down."""


@dataclass(frozen=True)
class Finding:
    """What came of a rule: "kept", "broken" or "not applicable", and the details.

    >>> Finding("holds", "kept").outcome
    'kept'
    """

    sentence: str
    outcome: str
    details: str = ""


def run_rule(rule: Rule, subject: Producer | Consumer) -> Finding:
    """Check one rule.

    >>> run_rule(Rule("never", lambda subject: expect(False, "no")), Producer("x", object))
    Finding(sentence='never', outcome='broken', details='no')
    """
    try:
        rule.check(subject)
    except NotApplicable as reason:
        return Finding(rule.sentence, "not applicable", str(reason))
    except RuleBroken as broken:
        return Finding(rule.sentence, "broken", str(broken))
    except Exception as error:
        return Finding(rule.sentence, "broken", f"raised {type(error).__name__}: {error}"[:200])
    return Finding(rule.sentence, "kept")
