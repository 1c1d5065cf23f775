"""Owns: what stands between a vendor's library and its GPUs: device nodes, groups, containers, and variables that hide.

Must not know: what the driver itself says.
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.machine.system import System

_CONTAINERS = ("/.dockerenv", "/run/.containerenv", "/.singularity.d")
_GROUPS_OF_CONTAINERS = ("docker", "kubepods", "containerd", "libpod", "lxc")


class VendorNodes(NamedTuple):
    """The nodes of a vendor's kernel driver, what gives them to a container, and the variables that hide devices.

    >>> NODES["rocm"].module
    'amdgpu'
    """

    patterns: tuple[str, ...]  # of all, at least one file must be there
    module: str
    container: str
    variables: tuple[str, ...]


NODES = {
    "cuda": VendorNodes(
        ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia[0-9]*"),
        "nvidia",
        "--gpus all (Docker) or --device nvidia.com/gpu=all (Podman)",
        ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    ),
    "rocm": VendorNodes(
        ("/dev/kfd", "/dev/dri/renderD[0-9]*"),
        "amdgpu",
        "--device /dev/kfd --device /dev/dri --group-add video --group-add render",
        ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    ),
}
_WINDOWS = "/dev/dxg"  # the one node of GPUs in Windows' subsystem for Linux
_JETSON = "/dev/nvhost-ctrl-gpu"


class Obstacle(NamedTuple):
    """One thing that keeps a process from its GPUs, and what to do about it.

    >>> Obstacle("there is no /dev/kfd", "Load amdgpu", "sudo modprobe amdgpu").command
    'sudo modprobe amdgpu'
    """

    reason: str
    advice: str
    command: str = ""


def nodes(system: System, vendor: str) -> list[str]:
    """The device nodes of a vendor that this machine has."""
    return [file for pattern in NODES[vendor].patterns for file in _matches(system, pattern)]


def container(system: System) -> str:
    """What says that this process is in a container; empty when nothing does."""
    marks = [path for path in _CONTAINERS if system.exists(path)]
    if "container" in system.environ:
        marks.append(f"container={system.environ['container']}")
    try:
        groups = system.text("/proc/1/cgroup")
    except (OSError, ValueError):
        groups = ""
    return (marks or [word for word in _GROUPS_OF_CONTAINERS if word in groups] or [""])[0]


def hiding_variables(system: System, vendor: str) -> dict[str, str]:
    """The variables that choose or hide devices, as they are set."""
    return {name: system.environ[name] for name in NODES[vendor].variables if name in system.environ}


def obstacles(system: System, vendor: str) -> list[Obstacle]:
    """Everything that keeps this process from the vendor's GPUs, the most likely cause first."""
    return [*_hidden(system, vendor), *_absent(system, vendor), *_forbidden(system, vendor)]


def _hidden(system: System, vendor: str) -> list[Obstacle]:
    return [
        Obstacle(f"{name} is {value!r} and hides devices", f"Unset {name}, or name devices there", f"unset {name}")
        for name, value in hiding_variables(system, vendor).items()
        if value.strip().lower() not in ("all",)
    ]


def _absent(system: System, vendor: str) -> list[Obstacle]:
    if vendor == "cuda" and (system.exists(_WINDOWS) or system.exists(_JETSON)):
        return []
    known = NODES[vendor]
    absent = [pattern.replace("[0-9]", "") for pattern in known.patterns if not _matches(system, pattern)]
    if not absent:
        return []
    reason = f"there is no {', '.join(absent)}"
    if container(system):
        return [Obstacle(f"{reason} in this container", f"Start the container with {known.container}")]
    if system.exists(f"/sys/module/{known.module}"):
        return [Obstacle(reason, f"The kernel module {known.module} is loaded: see what it says", "sudo dmesg | tail")]
    return [Obstacle(reason, f"Load the kernel module {known.module}", f"sudo modprobe {known.module}")]


def _forbidden(system: System, vendor: str) -> list[Obstacle]:
    found = []
    for path in nodes(system, vendor):
        if not system.may_write(path):
            group = system.group(path)
            advice = f"Add this user to the group {group}, and log in again; in a container give --group-add {group}"
            found.append(Obstacle(f"this user may not open {path}", advice, f'sudo usermod -aG {group} "$USER"'))
    return found


def _matches(system: System, pattern: str) -> list[str]:
    folder, _, name = pattern.rpartition("/")
    return [f"{folder}/{each}" for each in system.names(folder) if fnmatch(each, name)]
