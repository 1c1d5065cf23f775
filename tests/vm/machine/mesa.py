"""Owns: a Mesa for the guest that can make textures of DMA-BUFs: the newer one of the archive, or the host's own.

Must not know: what is drawn with it.
"""

import shutil
from pathlib import Path

from vm.machine.archive import Archive, release
from vm.machine.means import CACHE, MissingMeans

PACKAGES = [
    "libegl-mesa0",
    "mesa-libgallium",
    "libgbm1",
    "libgl1-mesa-dri",
    "libdrm2",
    "libdrm-amdgpu1",
    "libdrm-intel1",
]
VENDOR = "usr/share/glvnd/egl_vendor.d/50_mesa.json"


def find_mesa() -> dict[str, str]:
    """Variables for the guest that lead the loader of EGL to it."""
    folder = CACHE / "mesa"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _fetch(folder)
        (folder / "complete").touch()
    libraries = [str(found.parent) for found in folder.rglob("libEGL_mesa.so.0")]
    variables = {"__EGL_VENDOR_LIBRARY_FILENAMES": str(folder / VENDOR), "MESA_SHADER_CACHE_DISABLE": "true"}
    if libraries:
        variables |= {"LD_LIBRARY_PATH": libraries[0], "LIBGL_DRIVERS_PATH": f"{libraries[0]}/dri"}
    return variables


def _fetch(folder: Path) -> None:
    """The packages of the backports where the distribution has them; else the host's own is described."""
    try:
        archive = Archive(f"{release()[1]}-backports")
        archive.open()
        if archive.has("libegl-mesa0"):
            archive.fetch([package for package in PACKAGES if archive.has(package)], folder)
            return
    except MissingMeans:
        pass  # no backports; then the release itself is new enough, or the test says that it is not
    (folder / VENDOR).parent.mkdir(parents=True, exist_ok=True)
    text = '{"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_mesa.so.0"}}\n'
    (folder / VENDOR).write_text(text, encoding="utf-8")
