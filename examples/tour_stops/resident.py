"""Owns: what the kernel says about the memory that this process uses. Nothing here asks tensormem."""

import os
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")


def resident_bytes() -> int:
    """Memory of this process that is really in RAM now, as the kernel counts it page by page."""
    return _field(Path("/proc/self/smaps_rollup"), "Rss")


def memory_file_bytes() -> int:
    """Memory that this process holds in memory files, mapped or not: what unmapping alone does not free."""
    return sum(file.stat().st_blocks * 512 for file in DESCRIPTORS.iterdir() if _is_memory_file(file))


def _is_memory_file(file: Path) -> bool:
    try:
        return os.readlink(file).startswith("/memfd:")
    except FileNotFoundError:  # the descriptor that listed the folder
        return False


def _field(file: Path, name: str) -> int:
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"{file} has no {name}")
