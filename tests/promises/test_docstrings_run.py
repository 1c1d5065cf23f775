"""Promise: every example in a docstring of tensormem runs and prints what it says, compiled modules included."""

import doctest
import importlib
import pkgutil
from typing import Any

import pytest

import tensormem

# A program, and the native libraries, which stand beside the compiled modules and look like some.
NOT_IMPORTED = {
    "tensormem.__main__",
    "tensormem._core.libtensormem_native",
    "tensormem._core.libtensormem_preload",
}
MODULES = sorted(
    {module.name for module in pkgutil.walk_packages(tensormem.__path__, "tensormem.")} - NOT_IMPORTED | {"tensormem"}
)


class Runner(doctest.DocTestRunner):
    """An example that needs a library which is not installed could not run; that is said, and is not a failure."""

    def report_unexpected_exception(self, out: Any, test: Any, example: Any, exc_info: Any) -> None:
        error = exc_info[1]
        if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("tensormem"):
            pytest.skip(f"its examples need {error.name}")
        super().report_unexpected_exception(out, test, example, exc_info)


@pytest.mark.parametrize("name", MODULES)
def test_every_example_of_the_module_runs(name: str) -> None:
    runner = Runner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder().find(importlib.import_module(name)):
        runner.run(test)
    assert runner.failures == 0


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
