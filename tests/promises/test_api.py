"""Promise: every public name exists, says what it is, and is listed where its module is."""

import importlib
import inspect
import re
from types import ModuleType

import pytest

from support.public_names import CLASSES, MISSING, MODULES, NAMES


@pytest.mark.parametrize("name", MODULES)
def test_the_module_says_what_it_owns(name: str) -> None:
    assert (importlib.import_module(name).__doc__ or "").strip()


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """complex64 comes before complex128."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_listed_once_in_order_and_no_class_is_missing(name: str) -> None:
    module = importlib.import_module(name)
    listed = list(getattr(module, "__all__", []))
    assert listed == sorted(set(listed), key=_by_numbers)
    own = {
        each
        for each, value in vars(module).items()
        if not each.startswith("_") and inspect.isclass(value) and value.__module__ == name
    }
    assert not listed or own <= set(listed)


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda part: part)
def test_a_public_name_exists_and_has_a_docstring(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, ModuleType):
        assert (inspect.getdoc(value) or "").strip(), f"{module}.{name} does not say what it is"


@pytest.mark.parametrize(("module", "name"), CLASSES, ids=lambda part: part)
def test_every_public_method_and_property_has_a_docstring(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)
    # Attributes of compiled classes have no place for one, and the name of a test is its docstring.
    members = {each: member for each, member in vars(value).items() if not each.startswith(("_", "test_"))}
    said = [each for each, member in members.items() if inspect.isroutine(member) or isinstance(member, property)]
    assert [each for each in said if not (inspect.getdoc(getattr(value, each)) or "").strip()] == []


def test_public_names_are_found_at_all() -> None:
    assert len(NAMES) > 100
    assert ("tensormem", "Stream") in NAMES
    assert ("tensormem.mr", "PoolMemoryResource") in NAMES


def test_every_module_can_be_looked_at() -> None:
    if MISSING:
        pytest.skip(
            "; ".join(f"{module} needs {library}, which is not installed" for module, library in MISSING.items())
        )
