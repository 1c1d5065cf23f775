"""What TENSORMEM_* says is what the host driver does; each in a process of its own, since it is read once."""

import os
import subprocess
import sys

import pytest


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_limit_on_streams_is_kept() -> None:
    code = """
import tensormem as tm
streams = [tm.Stream(tm.drivers.host()) for _ in range(3)]
try:
    tm.Stream(tm.drivers.host())
except tm.errors.OutOfBudget as error:
    print(error.current, error.limit)
"""
    assert run(code, TENSORMEM_MAX_STREAMS="3") == "3 3"


def test_huge_pages_can_be_turned_off() -> None:
    code = """
import tensormem as tm
from tensormem import _core
host = tm.drivers.host()
physical = host.physical_create(2 << 20)
print(host.physical_info(physical)["huge_pages"], _core.host_facts()["huge_pages"])
host.physical_destroy(physical)
"""
    assert run(code, TENSORMEM_HUGE_PAGES="never") == "False False"


@pytest.mark.parametrize(("setting", "wished"), [("auto", True), ("never", False)])
def test_large_blocks_wish_for_huge_pages_unless_that_is_turned_off(setting: str, wished: bool) -> None:
    code = """
import tensormem as tm
block = tm.mr.HostMemoryResource().allocate("64MiB")
middle, inside = block.ptr + (32 << 20), False
for line in open("/proc/self/smaps"):
    first, _, rest = line.partition("-")
    if rest and " " not in first:
        inside = int(first, 16) <= middle < int(rest.split()[0], 16)
    elif inside and line.startswith("VmFlags:"):
        print("hg" in line.split())
"""
    assert run(code, TENSORMEM_HUGE_PAGES=setting) == str(wished)


@pytest.mark.parametrize("variable", ["TENSORMEM_MAX_STREAMS", "TENSORMEM_HUGE_PAGES"])
def test_a_wrong_value_is_told_when_the_driver_is_first_used_and_not_at_import(variable: str) -> None:
    code = """
import tensormem as tm
try:
    tm.drivers.host()
except tm.errors.InvalidConfig as error:
    print(error.variable, error.value)
"""
    assert run(code, **{variable: "potatoes"}) == f"{variable} potatoes"
