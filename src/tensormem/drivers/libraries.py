"""Owns: where the vendors' driver libraries are looked for, in which order, and what became of each file.

A variable that names a file is obeyed: that file or nothing. Without one, what the process has loaded already goes
first, because two runtimes of one vendor in a process do not share memory; then what the loader finds; then the usual
folders, AMD's wheels and PyTorch's own copy. Must not know: how a library is used.
"""

from __future__ import annotations

import sys
from glob import glob
from pathlib import Path
from typing import NamedTuple

from tensormem.config import get_config
from tensormem.drivers.simulator import is_simulator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Candidate", "Refusal", "candidates", "explain", "flaw", "is_about_the_file"]

VARIABLES = {"cuda": "TENSORMEM_CUDA_LIBRARY", "rocm": "TENSORMEM_HIP_LIBRARY"}
"""The variable that names each vendor's library."""

_NAMES = {
    "cuda": ("libcuda.so.1",),
    # The name without a number belongs to developers' packages; the others are what users have.
    "rocm": ("libamdhip64.so", *(f"libamdhip64.so.{number}" for number in (8, 7, 6, 5))),
}
_FOLDERS = {
    # Windows' subsystem for Linux, Jetson boards, containers that lack the loader's cache.
    "cuda": (
        "/usr/lib/wsl/lib",
        "/usr/lib/aarch64-linux-gnu/tegra",
        "/usr/local/nvidia/lib64",
        "/usr/local/cuda/compat",
    ),
    "rocm": ("/opt/rocm/lib", "/opt/rocm/lib64", "/opt/rocm-*/lib"),
}
# Inside the folders that Python imports from: what AMD's wheels and PyTorch bring along.
_PACKAGES = {"cuda": (), "rocm": ("_rocm_sdk_core/lib", "_rocm_sdk_libraries*/lib", "torch/lib")}


class Candidate(NamedTuple):
    """A file, or a name for the loader, and who says that the library may be there.

    >>> candidates("cuda")[0].library
    'libcuda.so.1'
    """

    library: str
    origin: str


class Refusal(NamedTuple):
    """A candidate that was not taken, and why.

    >>> Refusal("/nowhere/libcuda.so.1", "there is no such file").why
    'there is no such file'
    """

    library: str
    why: str

    @property
    def is_absent(self) -> bool:
        """Whether the loader found nothing of this name."""
        return f"{self.library}: cannot open shared object file: No such file" in self.why


def named(vendor: str) -> str:
    """The file that the vendor's variable names; empty when it names none."""
    config = get_config()
    file = config.cuda_library if vendor == "cuda" else config.hip_library
    return "" if file == "off" else file


def candidates(vendor: str) -> list[Candidate]:
    """Where to look for a vendor's library, in this order; nothing is opened."""
    if named(vendor):
        return [Candidate(named(vendor), VARIABLES[vendor])]
    found = dict.fromkeys(_loaded(vendor), "loaded in this process")
    found |= dict.fromkeys(_NAMES[vendor], "the loader")
    for file, origin in _files(vendor):
        found.setdefault(file, origin)
    return [Candidate(library, origin) for library, origin in found.items()]


def flaw(library: str) -> str:
    """What is wrong with a file before it is opened; empty when nothing is, or for a name that the loader resolves."""
    trouble = _trouble(Path(library)) if "/" in library else ""
    return f"{library} cannot be opened: {trouble}" if trouble else ""


def _trouble(file: Path) -> str:
    if not file.exists():
        return "there is no such file"
    if not file.is_file():
        return "it is not a file"
    try:
        with open(file, "rb") as opened:
            magic = opened.read(4)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return "" if magic == b"\x7fELF" else "it is not a shared library"


def is_about_the_file(why: str) -> bool:
    """Whether another file may serve better; otherwise the driver itself has spoken."""
    return "cannot be opened" in why or " is not a " in why


def explain(refused: Sequence[Refusal]) -> str:
    """Why no library serves: the first that is there and does not, or that there is none."""
    return next((each.why for each in refused if not each.is_absent), refused[0].why)


def _loaded(vendor: str) -> Iterator[str]:
    stem = _NAMES[vendor][0].partition(".so")[0] + ".so"
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return
    files = (line.split(maxsplit=5)[-1] for line in lines if stem in line)
    # The simulated GPU stays loaded when it is switched off; it is never taken by accident.
    yield from dict.fromkeys(file for file in files if Path(file).name.startswith(stem) and not is_simulator(file))


def _files(vendor: str) -> Iterator[tuple[str, str]]:
    for folder in _FOLDERS[vendor]:
        yield from _in(folder, vendor, folder)
    for entry in dict.fromkeys(sys.path):
        for package in _PACKAGES[vendor]:
            yield from _in(f"{entry or '.'}/{package}", vendor, f"the package {package.partition('/')[0]}")


def _in(pattern: str, vendor: str, origin: str) -> Iterable[tuple[str, str]]:
    return ((file, origin) for name in _NAMES[vendor] for file in sorted(glob(f"{pattern}/{name}"), reverse=True))
