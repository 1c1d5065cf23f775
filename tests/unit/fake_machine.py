"""Owns: machines that the tests do not have, made of files in a folder. A test spoils what it is about."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from tensormem import errors
from tensormem.drivers import ProbeResult
from tensormem.reports.machine import System

if TYPE_CHECKING:
    from tensormem.reports.machine.system import DeviceInfo

THP = "/sys/kernel/mm/transparent_hugepage"
FILES = {
    "/proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nHugePages_Total: 0\nHugePages_Free: 0\n",
    "/proc/self/status": "Name:\tpython\nCapEff:\t0000000000000000\n",
    "/proc/self/cgroup": "0::/user/app\n",
    "/proc/sys/vm/overcommit_memory": "0\n",
    "/sys/devices/system/node/node0/cpulist": "0-1\n",
    f"{THP}/enabled": "always [madvise] never\n",
    f"{THP}/shmem_enabled": "always within_size advise [never] deny force\n",
}


class Machine(System):
    """A Linux machine without a GPU and without any files; all that is no file is healthy."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, environ={})
        self.libraries: dict[str, str] = {}  # name -> trouble, "" when it loads
        self.limits: dict[int, int | None] = {resource.RLIMIT_NOFILE: 4096}
        self.forbidden: set[str] = set()
        self.seals: bool | OSError = True
        self.huge = (True, "")
        self.used_mappings = (100, 65530)
        self.addresses: errors.TensormemError | None = None
        self.shm = (2**30, 2**30)
        self.core: ImportError | None = None
        self.gpu_devices: dict[str, DeviceInfo] = {}
        self.file = ("/usr/lib/libcuda.so.1", list[tuple[str, str]]())
        self.gpu_drivers = [ProbeResult(name, False, "it does not work", "Mend it") for name in ("cuda", "rocm")]

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("latin-1"))

    def may_write(self, path: str) -> bool:
        return path not in self.forbidden

    def space(self, path: str) -> tuple[int, int]:
        return self.shm

    def limit(self, kind: int) -> int | None:
        return self.limits.get(kind)

    def sealed_memory_holds(self) -> bool:
        if isinstance(self.seals, OSError):
            raise self.seals
        return self.seals

    def load(self, library: str) -> ctypes.CDLL:
        trouble = self.libraries.get(library, f"{library}: cannot open shared object file: No such file or directory")
        if trouble:
            raise OSError(trouble)
        return ctypes.CDLL("libm.so.6")  # some library; not the process, which may have loaded others by now

    def drivers(self) -> list[ProbeResult]:
        if self.core:
            raise self.core
        return [result for result in super().drivers() if result.name == "host"] + self.gpu_drivers

    def library(self, vendor: str) -> tuple[str, list[tuple[str, str]]]:
        return self.file

    def devices(self, vendor: str) -> dict[str, DeviceInfo]:
        return self.gpu_devices

    def huge_pages(self) -> tuple[bool, str]:
        return self.huge

    def mappings(self) -> tuple[int, int]:
        return self.used_mappings

    def reserve_and_release(self, nbytes: int) -> None:
        if self.addresses:
            raise self.addresses


def healthy_machine(root: Path) -> Machine:
    """A machine where nothing needs attention."""
    machine = Machine(root)
    for path, text in FILES.items():
        machine.write(path, text)
    return machine
