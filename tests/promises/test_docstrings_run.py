"""Promise: every example in a docstring of tensormem runs and prints what it says, compiled modules included."""

import doctest
import importlib
import pkgutil

import pytest

import tensormem

# A program, and the native library, which stands beside the compiled modules and looks like one.
NOT_IMPORTED = {"tensormem.__main__", "tensormem._core.libtensormem_native"}
MODULES = sorted(
    {module.name for module in pkgutil.walk_packages(tensormem.__path__, "tensormem.")} - NOT_IMPORTED | {"tensormem"}
)


@pytest.mark.parametrize("name", MODULES)
def test_every_example_of_the_module_runs(name: str) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def test_examples_of_the_core_are_found() -> None:
    names = [module for module in MODULES if module.startswith(("tensormem.errors", "tensormem._core"))]
    examples = [
        example
        for name in names
        for test in doctest.DocTestFinder().find(importlib.import_module(name))
        for example in test.examples
    ]
    assert len(names) > 3
    assert len(examples) > 20
