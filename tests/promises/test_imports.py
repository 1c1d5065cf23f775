"""Promise: `import tensormem` needs nothing but the standard library, loads its parts when they are used, and touches
nothing of the outside."""

from pathlib import Path

import pytest

import tensormem
from support.python_processes import check_python

PACKAGE = Path(tensormem.__file__).parent
LIST_FOREIGN = """
import sys
before = set(sys.modules)
import {name} as module
for name in module.__all__:
    getattr(module, name)
tops = {{name.partition(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names) - {{"tensormem"}}
# Not packages: what compiled modules share among themselves, and what multiprocessing calls the main module.
print(*(name for name in tops - {{"cython_runtime", "__mp_main__"}} if not name.startswith("_cython_")))
"""
LOADED_EARLY = """
import sys
import tensormem
print(*(name for name in sys.modules if name.startswith("tensormem.")))
"""
HEAVY = """
import sys
before = set(sys.modules)
import tensormem as tm
tm.empty((4, 4))
heavy = {"asyncio", "ctypes", "email", "html", "importlib.metadata", "inspect", "logging", "socket", "zipfile"}
print(*sorted(heavy & set(sys.modules) - before))
"""
STARTED = """
import os, threading
import tensormem as tm
tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource()).allocate(64)
assert threading.active_count() == 1 == len(os.listdir("/proc/self/task"))
"""
IMPORT_EACH_FIRST = """
import importlib, os
for name in {names!r}:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            importlib.import_module(name)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, name
"""


@pytest.mark.parametrize(
    "name", ["tensormem", "tensormem.mr", "tensormem.streams", "tensormem.drivers", "tensormem.vmm"]
)
def test_importing_takes_only_the_standard_library(name: str) -> None:
    assert check_python(LIST_FOREIGN.format(name=name), "-W", "error").split() == []


def test_the_parts_are_loaded_when_they_are_used() -> None:
    assert check_python(LOADED_EARLY, "-W", "error").split() == ["tensormem.lazy_names"]  # which loads the others


def test_importing_and_allocating_starts_no_thread() -> None:
    check_python(STARTED, "-W", "error")


def test_every_module_can_be_imported_first() -> None:
    names = [
        "tensormem." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py")
        and path.relative_to(PACKAGE).parts[0] not in ("cli", "_core")
    ]
    assert len(names) > 10
    assert "tensormem.errors" in names
    check_python(IMPORT_EACH_FIRST.format(names=names), "-W", "error")


def test_storages_can_be_had_without_tensors_having_been_imported() -> None:
    check_python(
        """
        from tensormem.memories import allocate
        assert allocate(64).nbytes == 64
        """
    )


def test_a_first_tensor_loads_no_heavy_part_of_the_standard_library() -> None:
    assert check_python(HEAVY).split() == []


@pytest.mark.parametrize(
    "variables", [{"TENSORMEM_TOP": "1"}, {"TENSORMEM_TRACE": "run.tmt"}], ids=lambda each: next(iter(each))
)
def test_every_module_can_be_imported_first_while_the_environment_asks_for_something(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    check_python(
        IMPORT_EACH_FIRST.format(names=["tensormem.trace", "tensormem.top", "tensormem.pools", "tensormem.units"])
    )
