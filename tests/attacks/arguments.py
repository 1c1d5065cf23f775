"""Owns: the attack by arguments: every public callable and every method of a live object, called with anything.

A call returns, is refused by a named error, or waits where waiting is its job. It never crashes, never hangs, never
ends in an error of our own. Must not know: what the callables do.
"""

from __future__ import annotations

import functools
import inspect
import signal
from collections.abc import Callable
from random import Random
from typing import Any

from attacks import api
from attacks.hostile_values import close_descriptors, hostile, plausible
from attacks.live_objects import MAKERS
from attacks.outcome import Outcome
from attacks.suite import Note, Suite
from tensormem import FrameRing, errors

__all__ = ["SUITE", "WAITS", "ask", "begin", "bounded", "errors", "methods_of", "parameters", "prepare"]

# What may wait as long as nothing happens: it has to hear a signal. Anything else has to return.
WAITS = {"receive", "receive_image", "receive_ring", "accept", "read", "write", "send", "__iter__", "__next__", "wait"}
WAITS |= {"synchronize", "claim", "connect", "attach", "call", "ask", "take", "serve", "wait_for", "receive_packet"}
WAITS |= {"receive_physical", "send_packet", "send_physical", "cluster_stats", "line", "receive_line", "check_peer"}
_PATIENCE, _LONG = 0.06, 20.0  # a wait looks for signals every 20 ms


class _Alarm(BaseException):
    """The alarm went off in the middle of a call."""


def _ring(*_: object) -> None:
    raise _Alarm


@functools.cache
def _functions() -> list[tuple[str, Callable[..., Any]]]:
    return list(api.functions().items())


_known: dict[type, list[str]] = {}


def methods_of(thing: object) -> list[str]:
    """What can be asked of it."""
    cls = type(thing)
    if cls not in _known:
        _known[cls] = api.methods_of(cls)
    return _known[cls]


@functools.cache
def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def parameters(function: Any) -> list[inspect.Parameter] | None:
    """What it takes, if it says so."""
    try:
        found = _signature(function)
    except TypeError:  # not hashable
        return None
    return None if found is None else list(found.parameters.values())


def _value(draw: Random, name: str) -> Any:
    return plausible(draw, name) if draw.random() < 0.55 else hostile(draw)


def _arguments(draw: Random, function: Any) -> tuple[list[Any], dict[str, Any]]:
    taken = parameters(function)
    if taken is None or draw.random() < 0.05:
        return [hostile(draw) for _ in range(draw.choice([0, 1, 1, 2, 2, 3, 4]))], {}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for each in taken:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            args += [hostile(draw) for _ in range(draw.choice([0, 0, 1, 3]) if each.kind == each.VAR_POSITIONAL else 0)]
        elif each.kind == each.KEYWORD_ONLY or kwargs:
            if each.default is each.empty or draw.random() < 0.4:
                kwargs[each.name] = _value(draw, each.name)
        elif each.default is each.empty or draw.random() < 0.6:
            args.append(_value(draw, each.name))
        elif each.kind != each.POSITIONAL_ONLY and draw.random() < 0.3:
            kwargs[each.name] = _value(draw, each.name)
        else:
            break
    return args, kwargs


def _shown(values: list[Any], named: dict[str, Any]) -> str:
    def show(value: Any) -> str:
        if type(value) in (int, str, float, bool, bytes, type(None)):
            return repr(value)[:40]
        if type(value) in (tuple, list):
            return f"{type(value).__name__}({', '.join(map(show, value[:4]))})"
        return f"<{type(value).__name__}>"

    return ", ".join([*map(show, values), *(f"{name}={show(value)}" for name, value in named.items())])


def bounded(name: str, call: Callable[[], Any], may_wait: bool = False) -> Any:
    """The call, with an alarm: `TimeoutError` where waiting is its job, and a finding anywhere else."""
    waits = may_wait or name.rsplit(".", 1)[-1] in WAITS
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE if waits else _LONG, 0.2)
    try:
        result = call()
        if inspect.isgenerator(result):
            next(result, None)
        return result
    except _Alarm:
        if waits:
            raise TimeoutError from None
        raise AssertionError(f"{name} did not return in {_LONG} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _call(draw: Random, note: Note, name: str, function: Any) -> Any:
    args, kwargs = _arguments(draw, function)
    note(f"{name}({_shown(args, kwargs)})")
    # Whoever walks over a ring waits for its next frame.
    rings = any(isinstance(each, FrameRing) for each in [*args, *kwargs.values()])
    return bounded(name, lambda: function(*args, **kwargs), rings)


def ask(draw: Random, note: Note, target: Any, kind: str) -> Any:
    """One thing of an object: a method is called, a property read and sometimes set."""
    names = methods_of(target)
    if not names:
        return repr(target)
    name = draw.choice(names)
    dotted = f"{kind}: {type(target).__name__}.{name}"
    note(dotted)
    found = bounded(dotted, lambda: getattr(target, name), may_wait=True)
    if draw.random() < 0.05 and not callable(found):
        try:
            setattr(target, name, hostile(draw))
        except AttributeError as refused:
            raise TypeError("not writable") from refused
    return _call(draw, note, dotted, found) if callable(found) else found


def _attack(draw: Random, note: Note) -> None:
    if draw.random() < 0.4:
        name, function = draw.choice(_functions())
        made = _call(draw, note, name, function)
        if type(made).__module__.startswith("tensormem"):
            ask(draw, note, made, name)
        return
    kind = draw.choice(list(MAKERS))
    target = MAKERS[kind]()
    for _ in range(draw.choice([1, 1, 2, 4])):
        ask(draw, note, target, kind)


def _case(draw: Random, note: Note) -> Outcome:
    try:
        _attack(draw, note)
    except TimeoutError:
        return Outcome.WAITED
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        close_descriptors()
    return Outcome.FINE


def prepare() -> None:
    """Before the first batch: everything that is attacked is imported, and its signatures are known."""
    for _, function in _functions():
        parameters(function)


def begin() -> None:
    """Before a batch."""
    signal.signal(signal.SIGALRM, _ring)


SUITE = Suite(
    "arguments",
    "Every public callable and every method of every live object, called with anything, returns or is refused by name.",
    _case,
    share=0.62,
    batch=400,
    prepare=prepare,
    begin=begin,
)
