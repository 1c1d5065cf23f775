"""Owns: every way in which probes reach the machine: its files, its limits, its loader, tensormem's compiled core.

Files are looked up under `root`, so that a test can show a machine that it does not have. Everything here raises
OSError with the reason when the machine has no answer, and ImportError when the core does not load.
Must not know: what the answers mean.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import grp
import os
import resource
import sys
from importlib import metadata
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from tensormem._core.base.drivers import _DeviceInfo
    from tensormem.drivers import ProbeResult

    DeviceInfo: TypeAlias = _DeviceInfo

_EGL_EXTENSIONS = 0x3055
# Python has these only when it was built against a recent enough C library; the kernel has them since 3.17.
_MFD_CLOEXEC, _MFD_ALLOW_SEALING = 1, 2
_F_ADD_SEALS, _F_SEAL_SHRINK, _F_SEAL_GROW = 1033, 2, 4


class System:
    """This machine and process, as probes see them.

    >>> System().platform
    'linux'
    """

    def __init__(self, root: str | Path = "/", environ: Mapping[str, str] | None = None) -> None:
        self.root = Path(root)
        self.environ = os.environ if environ is None else environ
        self.platform = sys.platform

    # --- Files ---

    def text(self, path: str) -> str:
        """The contents of a small text file."""
        return self._at(path).read_text(encoding="utf-8").strip()

    def number(self, path: str) -> int:
        """The number that a file holds."""
        return int(self.text(path))

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return self._at(path).exists()

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted; none when there is no such folder."""
        folder = self._at(path)
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    def may_write(self, path: str) -> bool:
        """Whether this process may read and write the file."""
        return os.access(self._at(path), os.R_OK | os.W_OK)

    def group(self, path: str) -> str:
        """The group that a file belongs to, by name."""
        number = self._at(path).stat().st_gid
        try:
            return grp.getgrgid(number).gr_name
        except KeyError:
            return str(number)

    def space(self, path: str) -> tuple[int, int]:
        """(total bytes, bytes free for this user) of the file system at `path`."""
        found = os.statvfs(self._at(path))
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    # --- This process ---

    def limit(self, kind: int) -> int | None:
        """The soft limit of a kind (`resource.RLIMIT_*`), None when there is none."""
        soft, _hard = resource.getrlimit(kind)
        return None if soft == resource.RLIM_INFINITY else soft

    def cores(self) -> int:
        """How many cores this process may run on."""
        return len(os.sched_getaffinity(0))

    def sealed_memory_holds(self) -> bool:
        """Makes a memory file, seals its size, and says whether it can really not be shrunk any more."""
        fd = self._create_memory_file("tensormem-doctor")
        try:
            os.ftruncate(fd, 4096)
            fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW)
            return not _can_resize(fd, 0) and os.fstat(fd).st_size == 4096
        finally:
            os.close(fd)

    def _create_memory_file(self, name: str) -> int:
        library = ctypes.CDLL(None, use_errno=True)
        try:
            create = library.memfd_create
        except AttributeError:
            raise OSError(errno.ENOSYS, "the C library has no memfd_create") from None
        fd = int(create(name.encode(), _MFD_CLOEXEC | _MFD_ALLOW_SEALING))
        if fd < 0:
            raise OSError(ctypes.get_errno(), f"memfd_create: {os.strerror(ctypes.get_errno())}")
        return fd

    # --- Libraries ---

    def load(self, library: str) -> ctypes.CDLL:
        """The shared library of this name, wherever the loader finds it."""
        return ctypes.CDLL(library)

    def egl_extensions(self) -> str:
        """What the EGL library offers before any display is opened."""
        egl = self.load("libEGL.so.1")
        try:
            query = egl.eglQueryString
        except AttributeError:
            raise OSError(errno.ENOSYS, "it has no eglQueryString", "libEGL.so.1") from None
        query.argtypes, query.restype = (ctypes.c_void_p, ctypes.c_int), ctypes.c_char_p
        return (query(None, _EGL_EXTENSIONS) or b"").decode(errors="replace")

    def installed_version(self, distribution: str) -> str | None:
        """The version of an installed package, without importing it; None when it is not installed."""
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            return None

    # --- tensormem's own core ---

    def drivers(self) -> list[ProbeResult]:
        """What tensormem says about its drivers."""
        from tensormem import drivers

        return drivers.probe()

    def library(self, vendor: str) -> tuple[str, list[tuple[str, str]]]:
        """(the file of a vendor's open driver, [(a file that was not taken, why)])."""
        from tensormem.drivers import registry

        refused = [(each.library, each.why) for each in registry.refusals(vendor) if not each.is_absent]
        return registry.platform(vendor).library, refused

    def devices(self, vendor: str) -> dict[str, DeviceInfo]:
        """What each device of a vendor's open driver can do, by name."""
        from tensormem.drivers import registry

        return {f"{vendor}:{each.device}": each.device_info() for each in registry.platform(vendor).drivers}

    def huge_pages(self) -> tuple[bool, str]:
        """Whether the host driver gets 2 MiB pages, and the reason it found."""
        from tensormem._core import host_facts

        facts = host_facts()
        return facts["huge_pages"], facts["huge_page_reason"]

    def mappings(self) -> tuple[int, int]:
        """(mappings that this process has now, mappings that it may have), as the host driver counts them."""
        from tensormem._core import host_facts

        facts = host_facts()
        return facts["areas"], facts["area_limit"]

    def reserve_and_release(self, nbytes: int) -> None:
        """Takes addresses from the host driver and gives them back."""
        from tensormem import drivers

        driver = drivers.host()
        driver.release(driver.reserve(nbytes), nbytes)


def _can_resize(fd: int, nbytes: int) -> bool:
    try:
        os.ftruncate(fd, nbytes)
    except PermissionError:
        return False
    return True
