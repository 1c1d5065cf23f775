"""Owns: a device of the kernel's test driver vgem: DMA-BUFs of a device, and fences that are done when we say so.

Must not know: tensormem. The structs are those of drm.h, drm_mode.h and vgem_drm.h, declared again.
"""

import fcntl
import os
import struct
import subprocess
from pathlib import Path


class Vgem:
    """One buffer of vgem, and its fences. A fence that nobody signals is done after ten seconds."""

    def __init__(self, nbytes: int) -> None:
        _load()
        self.device = os.open("/dev/dri/card0", os.O_RDWR)
        # struct drm_mode_create_dumb { u32 height, width, bpp, flags, handle (out), pitch (out); u64 size (out); }
        data = bytearray(struct.pack("=6IQ", nbytes // 4096, 1024, 32, 0, 0, 0, 0))
        fcntl.ioctl(self.device, 0xC02064B2, data)
        self.handle = struct.unpack("=6IQ", data)[4]
        # struct drm_prime_handle { u32 handle; u32 flags; s32 fd (out); }
        data = bytearray(struct.pack("=IIi", self.handle, os.O_RDWR | os.O_CLOEXEC, -1))
        fcntl.ioctl(self.device, 0xC00C642D, data)
        self.fd: int = struct.unpack("=IIi", data)[2]

    def attach_write(self) -> int:
        """Begin to "write": the number of a new fence of the buffer."""
        # struct drm_vgem_fence_attach { u32 handle; u32 flags (1: write); u32 fence (out); u32 pad; }
        data = bytearray(struct.pack("=4I", self.handle, 1, 0, 0))
        fcntl.ioctl(self.device, 0xC0106441, data)
        return int(struct.unpack("=4I", data)[2])

    def signal(self, fence: int) -> None:
        """Be done with it."""
        # struct drm_vgem_fence_signal { u32 fence; u32 flags; }
        fcntl.ioctl(self.device, 0x40086442, struct.pack("=II", fence, 0))

    def close(self) -> None:
        """Let go of the buffer and the device."""
        os.close(self.fd)
        os.close(self.device)


def _load() -> None:
    if Path("/dev/dri/card0").exists():
        return
    for module in sorted(Path("/later/vgem").iterdir()):
        subprocess.run(["insmod", module], check=True)
