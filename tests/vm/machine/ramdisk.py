"""Owns: the first file system of the virtual machine: busybox, a few kernel modules, and the program that is process 1.

It is written here, byte by byte, as a "newc" archive of cpio. Must not know: what runs in the machine.
"""

import shutil
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vm.machine.kernel import Kernel
from vm.machine.means import MissingMeans

MODULES = ["9pnet_virtio", "9p"]
# For tests to load: devices without hardware. vgem makes DMA-BUFs and fences, vivid is a camera of Video4Linux.
LATER = ["vgem", "vivid"]

# Everything is mounted where it is on the host, so that paths mean the same on both sides.
INIT = """#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /tmp /run /etc
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t debugfs debug /sys/kernel/debug
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t devpts pts /dev/pts
ip link set lo up
for module in /modules/*; do insmod "$module"; done
while read -r tag mode where; do
    mkdir -p "$where"
    options=trans=virtio,version=9p2000.L,msize=512000,$mode
    [ "$mode" = ro ] && options=$options,cache=loose
    mount -t 9p -o "$options" "$tag" "$where" || echo "cannot mount $where"
done </shares
sh /results/job
echo $? >/results/exit-code
sync
poweroff -f
"""


@dataclass(frozen=True)
class Share:
    """A folder of the host that the guest sees at `where`, read-only unless it says otherwise."""

    folder: Path
    where: Path
    writable: bool = False


class _Archive:
    """An archive of cpio that grows in memory."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._count = 0

    def add(self, name: str, mode: int, content: bytes = b"") -> None:
        self._count += 1
        encoded = name.encode() + b"\0"
        numbers = (self._count, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        self._data += b"070701" + b"".join(b"%08X" % number for number in numbers) + encoded
        self._pad()
        self._data += content
        self._pad()

    def finish(self) -> bytes:
        self.add("TRAILER!!!", 0)
        return bytes(self._data)

    def _pad(self) -> None:
        self._data += b"\0" * (-len(self._data) % 4)


def build_ramdisk(kernel: Kernel, shares: list[Share], links: dict[str, str]) -> bytes:
    """The bytes to boot `kernel` with: mounts `shares` under the tags share0, share1 and so on, then runs /results/job.

    `links` are symbolic links of the root folder, by name.
    """
    archive = _Archive()
    parents = {str(parent) for name in links for parent in PurePosixPath(name).parents} - {"."}
    for folder in ("bin", "modules", "later", *(f"later/{name}" for name in LATER), *sorted(parents)):
        archive.add(folder, stat.S_IFDIR | 0o755)
    archive.add("init", stat.S_IFREG | 0o755, INIT.encode())
    archive.add("bin/busybox", stat.S_IFREG | 0o755, _busybox())
    table = "".join(f"share{i} {'rw' if s.writable else 'ro'} {s.where}\n" for i, s in enumerate(shares))
    archive.add("shares", stat.S_IFREG | 0o644, table.encode())
    for name, target in links.items():
        archive.add(name, stat.S_IFLNK | 0o777, target.encode())
    for folder, wanted in (("modules", MODULES), *((f"later/{name}", [name]) for name in LATER)):
        for number, name in enumerate(kernel.load_order(wanted)):
            archive.add(f"{folder}/{number:02}-{name}.ko", stat.S_IFREG | 0o644, kernel.module(name) or b"")
    return archive.finish()


def _busybox() -> bytes:
    found = shutil.which("busybox")
    if found is None:
        raise MissingMeans("busybox is not installed (apt-get install busybox-static)")
    program = Path(found).read_bytes()
    if b"/ld-linux" in program:
        raise MissingMeans(f"{found} needs shared libraries (apt-get install busybox-static)")
    return program
