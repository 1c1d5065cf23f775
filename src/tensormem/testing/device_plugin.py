"""Owns: the option by which `device_suite` is told which device to test.

Must not know: the tests.
"""

import pytest

from tensormem import drivers
from tensormem._core import Driver

__all__ = ["driver_under_test", "is_gpu_under_test", "pytest_addoption", "pytest_configure"]

_chosen: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--device`."""
    parser.addoption("--device", default="host", help="the device to test, such as cuda:0")


def pytest_configure(config: pytest.Config) -> None:
    """Remembers the device."""
    _chosen[:] = [config.getoption("--device")]


def is_gpu_under_test() -> bool:
    """Whether the device that was named is a GPU; without a name it is the host."""
    return bool(_chosen) and driver_under_test().name != "host"


def driver_under_test() -> Driver:
    """The driver of the device that was named on the command line."""
    return drivers.get(_chosen[0])
