"""Owns: the probes of Python and of the optional packages tensors come from. Nothing is imported to look at it."""

from __future__ import annotations

import platform
import sys
import sysconfig

from tensormem.reports.machine.finding import Area, Outcome, missing, works
from tensormem.reports.machine.probe import Probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.machine.system import System

# What is imported, and the names it may be installed under.
_PACKAGES = {
    "numpy": ("numpy",),
    "torch": ("torch",),
    "cupy": ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy-rocm-7-0", "cupy-rocm-5-0"),
    "numba": ("numba",),
    "jax": ("jax",),
    "pyarrow": ("pyarrow",),
}


def probes() -> tuple[Probe, ...]:
    """One probe for Python and one per package."""
    return (Probe("python", Area.LIBRARY, _python), *(_package_probe(*package) for package in _PACKAGES.items()))


def _python(system: System) -> Outcome:
    return works(platform.python_version(), f"{platform.python_implementation()}, {_gil()}")


def _gil() -> str:
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "with the GIL"
    enabled = getattr(sys, "_is_gil_enabled", lambda: False)()
    return "free-threaded, but the GIL was switched on" if enabled else "free-threaded"


def _package_probe(name: str, distributions: tuple[str, ...]) -> Probe:
    def ask(system: System) -> Outcome:
        for distribution in distributions:
            version = system.installed_version(distribution)
            if version is not None:
                return works(version, f"installed as {distribution}")
        return missing("", "not installed", "Only needed to exchange tensors with it")

    return Probe(name, Area.LIBRARY, ask)
