"""`inspect.signature`, and with it `help` and editors, know every public callable, compiled or not."""

import importlib
import inspect
import typing
from typing import Any

import pytest

import tensormem as tm
from tensormem import mr

MODULES = [
    "tensormem",
    *(f"tensormem.{name}" for name in ("copy", "drivers", "gl", "images", "memories", "mr")),
]
MODULES += [f"tensormem.{name}" for name in ("pools", "rmm", "rmm.mr", "sharing", "spaces", "streams", "tensor", "vmm")]
CALLABLES = sorted(
    {
        (module, name)
        for module in MODULES
        for name in importlib.import_module(module).__all__
        if callable(value := getattr(importlib.import_module(module), name))
        and not inspect.ismodule(value)
        and not isinstance(value, typing.NewType)
        and typing.get_origin(value) is None  # an alias of types
    }
)
# Memory of a kind takes the options of that kind, which may be a user's own.
_OPTIONS_OF_KINDS = {("tensormem", "image"), ("tensormem.images", "image"), ("tensormem.memories", "allocate")}


@pytest.mark.parametrize(("module", "name"), CALLABLES)
def test_a_public_callable_has_a_signature_without_nameless_options(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)
    signature = inspect.signature(value)
    nameless = [each for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]
    by_hand = isinstance(value, type) and (getattr(value, "_is_protocol", False) or value is tm.StreamId)
    passes_on = name == "register_reinitialize_hook"  # to the function that it is given
    assert not nameless or by_hand or passes_on or (module, name) in _OPTIONS_OF_KINDS, signature


MADE_BY_HAND = [
    each
    for each in vars(mr).values()
    if isinstance(each, type)
    and each.__module__.startswith("tensormem._core")
    and "__init__" in vars(each)
    and not issubclass(each, tuple | str)
]


@pytest.mark.parametrize("cls", MADE_BY_HAND)
def test_a_compiled_class_takes_what_its_signature_says_and_nothing_else(cls: Any) -> None:
    names = set(inspect.signature(cls).parameters)
    with pytest.raises(TypeError, match=r"spce|argument|made"):
        cls(**dict.fromkeys(names, None), spce=None)


def test_a_class_of_a_user_has_its_own_signature() -> None:
    class Named(mr.HostMemoryResource):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class Plain(mr.HostMemoryResource):
        pass

    assert list(inspect.signature(Named).parameters) == ["name"]
    assert inspect.signature(Plain) == inspect.signature(mr.HostMemoryResource)
    assert list(inspect.signature(mr.PrefetchResourceAdaptor).parameters) == ["upstream_mr", "device"]
    assert inspect.signature(mr.RingSink).parameters["capacity"].default == 65536
