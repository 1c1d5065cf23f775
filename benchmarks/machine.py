"""Owns: what is noted about the machine and the packages beside every figure. Never a host name or a path."""

import datetime
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


def facts(packages: Iterable[str]) -> dict[str, object]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in packages},
    }


def sentence(noted: dict[str, object]) -> str:
    packages = noted["packages"]
    assert isinstance(packages, dict)
    memory = noted["memory_bytes"]
    assert isinstance(memory, int)
    versions = "".join(f", {name} {version}" for name, version in packages.items())
    return (
        f"{noted['date']}, {noted['cpu']}, {noted['cores']} cores, {memory / 2**30:.0f} GiB, "
        f"Linux {noted['kernel']}, Python {noted['python']}{versions}"
    )
