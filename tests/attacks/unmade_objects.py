"""Owns: the attack by objects that were not made to their end: `__new__` without `__init__`, a constructor that failed,
a subclass that forgets its base. Everything that they are asked is answered or refused; their end is silent.
"""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import pkgutil
from random import Random
from typing import Any

import tensormem._core as core
from attacks import api, arguments
from attacks.hostile_values import close_descriptors, hostile
from attacks.outcome import Outcome
from attacks.suite import Note, Suite

__all__ = ["SUITE"]


@functools.cache
def _classes() -> list[type]:
    found: dict[str, type] = {}
    for found_module in pkgutil.iter_modules(core.__path__):
        if found_module.name.startswith("lib"):
            continue
        module = importlib.import_module(f"{core.__name__}.{found_module.name}")
        for value in vars(module).values():
            if inspect.isclass(value) and value.__module__ == module.__name__:
                found[f"{module.__name__}.{value.__name__}"] = value
    for name, value in api.functions().items():
        if inspect.isclass(value) and value.__module__.startswith("tensormem"):
            found[name] = value
    builtin = (BaseException, int, str, tuple, dict)
    return [value for _, value in sorted(found.items()) if not issubclass(value, builtin)]


def _forgets(cls: type) -> type:
    class Forgets(cls):  # type: ignore[misc]
        def __init__(self, *args: object, **kwargs: object) -> None:
            pass

    return Forgets


def _unmade(draw: Random, note: Note) -> Any:
    cls: Any = draw.choice(_classes())
    way = draw.choice(["new", "new", "forgets", "failed", "failed twice"])
    note(f"{cls.__name__}, {way}")
    if way == "new":
        return cls.__new__(cls)
    if way == "forgets":
        return _forgets(cls)()
    made = cls.__new__(cls)
    for _ in range(1 if way == "failed" else 2):
        values = [hostile(draw) for _ in range(draw.choice([0, 1, 2, 3]))]
        try:
            made.__init__(*values)
        except Exception:
            continue
    return made


def _case(draw: Random, note: Note) -> Outcome:
    made = _unmade(draw, note)
    outcome = Outcome.FINE
    for _ in range(draw.choice([0, 1, 2, 4])):
        try:
            arguments.ask(draw, note, made, "unmade")
        except TimeoutError:
            outcome = Outcome.WAITED
        except (AssertionError, SystemError):
            raise
        except Exception as error:
            if isinstance(error, arguments.errors.InternalError):
                raise
            outcome = Outcome.REFUSED
    close_descriptors()
    del made
    if draw.random() < 0.05:
        gc.collect()
    return outcome


def _prepare() -> None:
    arguments.prepare()
    _classes()


SUITE = Suite(
    "unmade",
    "An object that was never made, or not to its end, answers or refuses whatever it is asked, and ends in silence.",
    _case,
    share=0.14,
    batch=400,
    prepare=_prepare,
    begin=arguments.begin,
)
