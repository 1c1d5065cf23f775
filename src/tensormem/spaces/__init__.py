"""Owns: where bytes live (spaces), what computes (devices), their numbers in DLPack, and which device suits a space.

Must not know: drivers and resources. Drivers say here which devices this machine has, and nothing here moves a byte.
Reads from low to high: kinds, place, words, device and space, registry, choice.
"""

from tensormem.spaces.choice import ComputeChoice, preferred_compute_devices, rank_compute_devices
from tensormem.spaces.device import ComputeDevice
from tensormem.spaces.kinds import DeviceKind, DeviceType, GpuVendor, OpKind, SpaceKind
from tensormem.spaces.registry import compute_devices, register_compute_device, unregister_compute_device
from tensormem.spaces.space import LogicalMemorySpace, gpu, main, managed, pinned

__all__ = [
    "ComputeChoice",
    "ComputeDevice",
    "DeviceKind",
    "DeviceType",
    "GpuVendor",
    "LogicalMemorySpace",
    "OpKind",
    "SpaceKind",
    "compute_devices",
    "gpu",
    "main",
    "managed",
    "pinned",
    "preferred_compute_devices",
    "rank_compute_devices",
    "register_compute_device",
    "unregister_compute_device",
]
