"""Every public name exists and says what it is."""

import importlib

import pytest

MODULES = ["tensormem", "tensormem.drivers", "tensormem.mr", "tensormem.spaces", "tensormem.streams"]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_exists_and_has_a_docstring(module: str) -> None:
    home = importlib.import_module(module)
    silent = [name for name in home.__all__ if not getattr(getattr(home, name), "__doc__", None)]
    assert silent == []


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_listed_once_and_in_order(module: str) -> None:
    names = list(importlib.import_module(module).__all__)
    assert names == sorted(set(names))
