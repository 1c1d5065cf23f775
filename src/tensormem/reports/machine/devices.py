"""Owns: what each GPU can do, as its driver says, and which of tensormem's memories that leaves out."""

from __future__ import annotations

from tensormem.reports.machine.finding import Area, Finding, Outcome, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.machine.system import DeviceInfo, System

# What a person calls each ability.
_ABILITIES = {
    "memory_pools": "pools",
    "virtual_memory": "virtual memory",
    "posix_handles": "POSIX handles",
    "managed_memory": "managed memory",
    "concurrent_managed_access": "concurrent managed access",
    "host_native_atomics": "host-native atomics",
    "pageable_memory_access": "access to pageable memory",
}
# What tensormem's users miss, and what to take instead.
_NEEDED = {
    "memory_pools": "GpuAsyncMemoryResource is refused: put a PoolMemoryResource over a GpuMemoryResource",
    "virtual_memory": "Elastic pools and the virtual memory manager are refused: use a PoolMemoryResource",
}


def findings(system: System, vendor: str) -> list[Finding]:
    """One finding per device of a vendor that works."""
    return [Finding(name, Area.DRIVER, outcome(info)) for name, info in system.devices(vendor).items()]


def outcome(info: DeviceInfo) -> Outcome:
    """What a device can do. A device without pools or virtual memory works only in part."""
    can = [text for name, text in _ABILITIES.items() if info[name]]  # type: ignore[literal-required]
    cannot = [text for name, text in _ABILITIES.items() if not info[name]]  # type: ignore[literal-required]
    kind = "integrated (memory shared with the CPU), " if info["integrated"] else ""
    reason = f"{info['name']}: {kind}has {', '.join(can) or 'plain memory alone'}"
    if cannot:
        reason += f"; has no {', '.join(cannot)}"
    lacking = [advice for name, advice in _NEEDED.items() if not info[name]]  # type: ignore[literal-required]
    status = Status.DEGRADED if lacking else Status.WORKS
    return Outcome(status, info["total_bytes"], reason, ". ".join(lacking), unit="bytes")
