"""Owns: the probes of limits: what the system lets this process take, and what is too low for tensors."""

from __future__ import annotations

import os
import resource
from pathlib import PurePosixPath

from tensormem.errors import TensormemError
from tensormem.reports.machine.finding import Area, Outcome, degraded, works
from tensormem.reports.machine.probe import Probe, explain
from tensormem.units import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.machine.system import System

ENOUGH_LOCKED_BYTES = 64 * 2**20
ENOUGH_MAPPINGS = 65530  # the kernel's own default
ENOUGH_OPEN_FILES = 1024
POOL_ADDRESSES = 128 * 2**30  # what an elastic pool reserves by default

_CAP_IPC_LOCK = 14
_NO_CGROUP_LIMIT = 2**62  # version 1 writes "no limit" as the largest number of whole pages
_OVERCOMMIT = {
    0: "the kernel judges each request",
    1: "every request is granted",
    2: "strict: memory is refused beyond the commit limit, even while much is free",
}


def probes() -> tuple[Probe, ...]:
    """One probe per limit."""
    return (
        Probe("memlock", Area.LIMIT, _memlock),
        Probe("max_map_count", Area.LIMIT, _max_map_count),
        Probe("address_space", Area.LIMIT, _address_space),
        Probe("overcommit", Area.LIMIT, _overcommit),
        Probe("open_files", Area.LIMIT, _open_files),
        Probe("cgroup_memory", Area.LIMIT, _cgroup_memory),
        Probe("cores", Area.LIMIT, _cores),
    )


def _memlock(system: System) -> Outcome:
    soft = system.limit(resource.RLIMIT_MEMLOCK)
    if soft is None:
        return works("unlimited", "any amount of memory can be page-locked")
    if _capabilities(system) >> _CAP_IPC_LOCK & 1:
        why = "this process has CAP_IPC_LOCK, so the limit does not bind it; it binds ordinary users"
        return works(soft, why, unit="bytes")
    if soft >= ENOUGH_LOCKED_BYTES:
        return works(soft, "this much memory can be page-locked", unit="bytes")
    why = f"pinned memory ends here; tensors need at least {format_size(ENOUGH_LOCKED_BYTES)}"
    advice = "Raise memlock in /etc/security/limits.conf, or give a container --ulimit memlock=-1"
    return degraded(soft, why, advice, "ulimit -l unlimited", "bytes")


def _capabilities(system: System) -> int:
    for line in system.text("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _max_map_count(system: System) -> Outcome:
    used, limit = system.mappings()
    why = f"{used:,} mappings are in use; scattered pages take one each"
    advice, command = "Raise it for pools with many scattered pages", "sudo sysctl -w vm.max_map_count=1048576"
    if limit < ENOUGH_MAPPINGS or used > limit * 8 // 10:
        return degraded(limit, why, advice, command)
    return works(limit, why)


def _address_space(system: System) -> Outcome:
    try:
        system.reserve_and_release(POOL_ADDRESSES)
    except TensormemError as error:
        limit = system.limit(resource.RLIMIT_AS)
        why = f"{format_size(POOL_ADDRESSES)} cannot be reserved: {error.what or explain(error)}"
        value = "unlimited" if limit is None else limit
        return degraded(value, why, "Lift the limit on addresses", "ulimit -v unlimited", "bytes")
    return works(POOL_ADDRESSES, "this many addresses were just reserved and released", unit="bytes")


def _overcommit(system: System) -> Outcome:
    mode = system.number("/proc/sys/vm/overcommit_memory")
    why = _OVERCOMMIT.get(mode, "a mode that tensormem does not know")
    if mode == 2:
        command = "sudo sysctl -w vm.overcommit_memory=0"
        return degraded(mode, why, "Let the kernel judge, or raise vm.overcommit_ratio", command)
    return works(mode, why)


def _open_files(system: System) -> Outcome:
    soft = system.limit(resource.RLIMIT_NOFILE)
    if soft is None:
        return works("unlimited", "each shared tensor needs one")
    if soft >= ENOUGH_OPEN_FILES:
        return works(soft, "each shared tensor needs one")
    why = "each shared tensor needs one, and so do the program's own files"
    return degraded(soft, why, "Raise the limit of open files", f"ulimit -n {ENOUGH_OPEN_FILES * 4}")


def _cgroup_memory(system: System) -> Outcome:
    limits = [limit for path in _cgroup_files(system) if (limit := _cgroup_limit(system, path)) is not None]
    if not limits:
        return works("unlimited", "no control group limits this process")
    why = "the control group (a container, a service) is killed beyond this"
    return works(min(limits), why, unit="bytes")


def _cgroup_files(system: System) -> list[str]:
    """The limit files of this process's groups and their parents; a limit anywhere above binds too."""
    found = []
    for line in system.text("/proc/self/cgroup").splitlines():
        _number, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, file = "/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        folder = PurePosixPath(path)
        found += [f"{mount}{str(group).rstrip('/')}/{file}" for group in (folder, *folder.parents)]
    return [path for path in found if system.exists(path)]


def _cgroup_limit(system: System, path: str) -> int | None:
    text = system.text(path)
    limit = None if text == "max" else int(text)
    return None if limit is None or limit >= _NO_CGROUP_LIMIT else limit


def _cores(system: System) -> Outcome:
    return works(system.cores(), f"this process may use them; the machine has {os.cpu_count()}")
