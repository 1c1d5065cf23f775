"""Owns: the rules of the DLPack standard for whoever takes a tensor in, every one of them broken on purpose.

Must not know: any library. Some of these structs bring a careless consumer's process down: those rules say so.
"""

import ctypes
import gc
from collections.abc import Callable
from typing import Any

from tensormem.testing.dlpack_rules import Consumer, NotApplicable, Rule, expect
from tensormem.testing.dlpack_structs import MadeProducer

__all__ = ["CONSUMER_RULES"]

_VALUES = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
_NESTED = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
_NULL = ctypes.POINTER(ctypes.c_int64)()


def _good(**options: Any) -> MadeProducer:
    return MadeProducer([2, 3], _VALUES, **options)


def _taken(subject: Consumer, made: MadeProducer, expected: Any = None) -> None:
    """The consumer takes it, reads the right values, and gives it back once."""
    result = subject.take(made)
    values = subject.read(result)
    expect(values == (_NESTED if expected is None else expected), f"it read {values}")
    del result, values
    gc.collect()
    expect(made.deleted == 1, f"the deleter was called {made.deleted} times")


def _refused(subject: Consumer, made: MadeProducer) -> None:
    """The consumer refuses it, with an exception, and gives it back once."""
    _, refused = _attempt(subject, made)
    expect(refused, "it was taken")
    _given_back(made)


def _attempt(subject: Consumer, made: MadeProducer) -> tuple[Any, bool]:
    """What the consumer made of it, and whether it refused. The exception is gone, and with it whatever it held."""
    try:
        return subject.take(made), False
    except Exception:
        return None, True


def _given_back(made: MadeProducer) -> None:
    gc.collect()
    # Who refuses by the device's name alone never had it.
    expected = 1 if made.asked else 0
    expect(made.deleted == expected, f"it refused, and the deleter was called {made.deleted} times")


def _rule_refusing(sentence: str, *, dangerous: bool = True, **spoiled: Any) -> Rule:
    lengths, strides = spoiled.pop("lengths", [2, 3]), spoiled.pop("strides", None)

    def check(subject: Consumer) -> None:
        _refused(subject, MadeProducer(lengths, _VALUES, strides=strides, spoiled=spoiled))

    return Rule(f"refuses {sentence}", check, dangerous)


def takes_versioned(subject: Consumer) -> None:
    made = _good()
    _taken(subject, made)
    _needs_versions(made)


def _needs_versions(made: MadeProducer) -> None:
    if not made.is_asked_for_versions:
        raise NotApplicable("it never asks for a versioned tensor")


def takes_legacy(subject: Consumer) -> None:
    _taken(subject, _good(legacy=True))


def asks_for_versions(subject: Consumer) -> None:
    made = _good()
    subject.take(made)
    expect(made.is_asked_for_versions, "it never said which versions it knows")


def names_no_stream(subject: Consumer) -> None:
    made = _good()
    subject.take(made)
    expect(made.asked[-1].get("stream") is None, f"it asked for stream {made.asked[-1].get('stream')}")


def lives_without_a_deleter(subject: Consumer) -> None:
    made = _good(deleter=False)
    result = subject.take(made)
    expect(subject.read(result) == _NESTED, "the values are wrong")
    del result
    gc.collect()
    expect(made.deleted == 0, "a deleter that is not there was called")


def consumes_once(subject: Consumer) -> None:
    made = _good()
    capsules: list[Any] = []

    class Twice:
        def __dlpack__(self, **options: Any) -> Any:
            capsules.append(capsules[0] if capsules else made.__dlpack__(**options))
            return capsules[-1]

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    first = subject.take(Twice())
    try:
        subject.take(Twice())
    except Exception:
        refused = True
    else:
        refused = False
    expect(refused, "one capsule was consumed twice")
    expect(subject.read(first) == _NESTED, "the first one was harmed")
    del first
    capsules.clear()
    gc.collect()
    expect(made.deleted == 1, f"the deleter was called {made.deleted} times")


def reads_an_offset(subject: Consumer) -> None:
    made = MadeProducer([2, 2], _VALUES, spoiled={"byte_offset": 8})
    _taken(subject, made, [[2.0, 3.0], [4.0, 5.0]])


def reads_strides(subject: Consumer) -> None:
    _taken(subject, MadeProducer([3, 2], _VALUES, strides=[1, 3]), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])


def reads_null_strides(subject: Consumer) -> None:
    _taken(subject, _good(legacy=True, spoiled={"strides_pointer": _NULL}))


def takes_or_refuses_negative_strides(subject: Consumer) -> None:
    made = MadeProducer([6], _VALUES, strides=[-1], spoiled={"byte_offset": 20})
    result, refused = _attempt(subject, made)
    if refused:
        return _given_back(made)
    expect(subject.read(result) == _VALUES[::-1], f"it read {subject.read(result)}")


def takes_scalars_and_empty_tensors(subject: Consumer) -> None:
    _taken(subject, MadeProducer([], [7.0]), 7.0)
    _taken(subject, MadeProducer([0, 3], []), [])


def takes_null_where_nothing_is(subject: Consumer) -> None:
    _taken(subject, MadeProducer([0], [], spoiled={"data": None}), [])


def respects_read_only(subject: Consumer) -> None:
    if subject.writable is None:
        raise NotApplicable("nobody can tell whether its tensors may be written")
    made = _good(spoiled={"flags": 1})
    result, refused = _attempt(subject, made)
    if refused:
        return _given_back(made)
    _needs_versions(made)
    expect(not subject.writable(result), "it takes read-only memory for writable")


def passes_on_what_the_producer_raises(subject: Consumer) -> None:
    class Broken:
        def __dlpack__(self, **options: object) -> object:
            raise ZeroDivisionError("as it was")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    try:
        subject.take(Broken())
    except ZeroDivisionError:
        return
    except Exception as error:
        expect(False, f"it became {type(error).__name__}")
    expect(False, "it was swallowed")


def refuses_what_is_no_capsule(subject: Consumer) -> None:
    class Strange:
        def __dlpack__(self, **options: object) -> object:
            return "no capsule"

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    try:
        subject.take(Strange())
    except Exception:
        return
    expect(False, "a text was taken for a capsule")


def gives_back_what_it_does_not_know(subject: Consumer) -> None:
    made = _good(spoiled={"major": 2})
    _, refused = _attempt(subject, made)
    _needs_versions(made)
    expect(refused, "it was taken")
    _given_back(made)


def _check(sentence: str, check: Callable[[Consumer], None], *, dangerous: bool = False) -> Rule:
    return Rule(sentence, check, dangerous)


CONSUMER_RULES = [
    _check("takes a versioned tensor and gives it back once", takes_versioned),
    _check("takes a legacy tensor and gives it back once", takes_legacy),
    _check("says which versions it knows", asks_for_versions),
    _check("names no stream for memory of the CPU", names_no_stream),
    _check("lives with a NULL deleter", lives_without_a_deleter, dangerous=True),
    _check("consumes a capsule once", consumes_once, dangerous=True),
    _check("reads byte_offset", reads_an_offset),
    _check("reads strides", reads_strides),
    _check("takes NULL strides for row-major", reads_null_strides, dangerous=True),
    _check("takes negative strides rightly, or refuses them", takes_or_refuses_negative_strides, dangerous=True),
    _check("takes scalars and empty tensors", takes_scalars_and_empty_tensors),
    _check("takes NULL data where there are no elements", takes_null_where_nothing_is, dangerous=True),
    _check("respects the read-only flag", respects_read_only),
    _check("passes on what the producer raises", passes_on_what_the_producer_raises),
    _check("refuses what is no capsule", refuses_what_is_no_capsule),
    _check("refuses another major version and gives it back once", gives_back_what_it_does_not_know, dangerous=True),
    _rule_refusing("an unknown device", device_type=99),
    _rule_refusing("an unknown type code", code=99),
    _rule_refusing("float33", bits=33),
    _rule_refusing("no lanes", lanes=0),
    _rule_refusing("a negative ndim", ndim=-1),
    _rule_refusing("a huge ndim", ndim=2**30),
    _rule_refusing("a negative length", lengths=[2, -3]),
    _rule_refusing("a shape beyond any memory", lengths=[2**40, 2**40]),
    _rule_refusing("strides beyond any memory", strides=[2**62, 1]),
    _rule_refusing("NULL data where there are elements", data=None),
    _rule_refusing("a NULL shape", shape_pointer=_NULL),
    _rule_refusing("a misaligned byte_offset", byte_offset=2),
]
"""Every rule for consumers."""
