"""Owns: a Linux kernel that has DMA-BUF heaps and udmabuf, from the distribution's own archive, kept in the cache.

A kernel counts only if its configuration file says that it has what the tests need. Must not know: how it is booted.
"""

import lzma
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from vm.machine.archive import Archive, release
from vm.machine.means import CACHE, MissingMeans, run

WANTED = ("CONFIG_UDMABUF", "CONFIG_DMABUF_HEAPS", "CONFIG_DMABUF_HEAPS_SYSTEM", "CONFIG_SYNC_FILE")


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel: its image, and the folder of its modules."""

    image: Path
    modules: Path
    config: Path

    @property
    def version(self) -> str:
        """Such as 6.12.95+deb12-amd64."""
        return self.image.name.removeprefix("vmlinuz-")

    def lacks(self) -> list[str]:
        """What of the wanted it does not have built in."""
        lines = set(self.config.read_text(encoding="utf-8").splitlines())
        return [name for name in WANTED if f"{name}=y" not in lines]

    def module(self, name: str) -> bytes | None:
        """The bytes of a module, unpacked; None if it is built in or not there."""
        for file in sorted(self.modules.rglob(f"{name}.ko*")):
            if file.suffix == ".ko":
                return file.read_bytes()
            if file.suffix == ".xz":
                return lzma.decompress(file.read_bytes())
            return _unpack_zstd(file)
        return None

    def load_order(self, names: list[str]) -> list[str]:
        """These modules and everything they need, in the order to load them; built-in ones are left out."""
        order: list[str] = []
        for name in names:
            self._visit(name, order)
        return order

    def _visit(self, name: str, order: list[str]) -> None:
        data = self.module(name)
        if data is None or name in order:
            return
        for needed in _needs(data):
            self._visit(needed, order)
        order.append(name)


def _needs(module: bytes) -> list[str]:
    """What a module depends on, from its own `depends=` line; file names may have - where this has _."""
    for line in module.split(b"\0"):
        if line.startswith(b"depends="):
            return [name for name in line[8:].decode().split(",") if name]
    return []


def _unpack_zstd(file: Path) -> bytes:
    unpacked = file.with_suffix("")
    run("zstd", "-q", "-d", "-k", "-f", file, "-o", unpacked)
    return unpacked.read_bytes()


def find_kernel() -> Kernel:
    """The kernel of the cache, or else the first of the archive that has everything."""
    if platform.machine() != "x86_64":
        raise MissingMeans(f"the virtual machine runs on x86_64 computers, not on {platform.machine()}")
    folder = CACHE / "kernel"
    if (folder / "complete").exists():
        return _unpacked(folder)
    refused: list[str] = []
    for suite, packages in _candidates():
        try:
            return _fetch(suite, packages, folder)
        except MissingMeans as missing:
            refused.append(f"{suite}: {missing}")
    raise MissingMeans(f"no kernel with DMA-BUF heaps and udmabuf ({'; '.join(refused)})")


def _candidates() -> list[tuple[str, str]]:
    """Suites to look in, and the meta package of their kernel. Backports first: they are newer, or not there."""
    distribution, codename = release()
    if distribution == "debian":
        return [(f"{codename}-backports", "linux-image-amd64"), (codename, "linux-image-amd64")]
    if distribution == "ubuntu":
        return [(f"{codename}-updates", "linux-image-generic"), (codename, "linux-image-generic")]
    raise MissingMeans(f"kernels are fetched on Debian and Ubuntu, and this is {distribution or 'something else'}")


def _fetch(suite: str, meta: str, folder: Path) -> Kernel:
    archive = Archive(suite)
    archive.open()
    image = archive.dependency(meta)
    version = image.removeprefix("linux-image-").removeprefix("unsigned-")
    parts = [f"linux-modules-{version}", f"linux-modules-extra-{version}"]  # Ubuntu's are apart
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archive.fetch([image, *(part for part in parts if archive.has(part))], folder)
    kernel = _unpacked(folder)
    if lacks := kernel.lacks():
        raise MissingMeans(f"Linux {kernel.version} is built without {', '.join(lacks)}")
    (folder / "complete").touch()
    return kernel


def _unpacked(folder: Path) -> Kernel:
    images = sorted(folder.glob("boot/vmlinuz-*"))
    configs = sorted(folder.glob("boot/config-*"))
    modules = sorted([*folder.glob("lib/modules/*"), *folder.glob("usr/lib/modules/*")])
    if not (images and configs and modules):
        raise MissingMeans("the kernel's package has no image, configuration or modules where they are expected")
    return Kernel(images[0], modules[0], configs[0])
