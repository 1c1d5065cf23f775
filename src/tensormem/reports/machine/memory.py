"""Owns: the probes of memory: how much there is, in which pages, and which shareable kinds the system offers."""

from __future__ import annotations

from mmap import PAGESIZE

from tensormem.reports.machine.finding import Area, Outcome, degraded, missing, works
from tensormem.reports.machine.probe import Probe, explain
from tensormem.units import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.machine.system import System

ENOUGH_AVAILABLE_BYTES = 512 * 2**20
ENOUGH_SHM_BYTES = 64 * 2**20

_THP = "/sys/kernel/mm/transparent_hugepage"
_SURFACELESS = "EGL_MESA_platform_surfaceless"


def probes() -> tuple[Probe, ...]:
    """One probe per kind of memory and of page."""
    return (
        Probe("main_memory", Area.MEMORY, _main_memory),
        Probe("available_memory", Area.MEMORY, _available_memory),
        Probe("numa_nodes", Area.MEMORY, _numa_nodes),
        Probe("huge_pages", Area.MEMORY, _huge_pages),
        Probe("anonymous_huge_pages", Area.MEMORY, _anonymous_huge_pages),
        Probe("shmem_huge_pages", Area.MEMORY, _shmem_huge_pages),
        Probe("hugetlb", Area.MEMORY, _hugetlb),
        Probe("memfd", Area.MEMORY, _memfd),
        Probe("posix_shm", Area.MEMORY, _posix_shm),
        Probe("dma_heap", Area.MEMORY, _dma_heap),
        Probe("udmabuf", Area.MEMORY, _udmabuf),
        Probe("opengl", Area.MEMORY, _opengl),
    )


def _memory_fields(system: System) -> dict[str, int]:
    """/proc/meminfo: counts as they are, sizes in bytes."""
    fields = {}
    for line in system.text("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        number, *unit = rest.split()
        fields[name] = int(number) * (1024 if unit == ["kB"] else 1)
    return fields


def _field(system: System, name: str) -> int:
    fields = _memory_fields(system)
    if name not in fields:
        raise ValueError(f"/proc/meminfo has no {name}")
    return fields[name]


def _main_memory(system: System) -> Outcome:
    return works(_field(system, "MemTotal"), "what the machine has", unit="bytes")


def _available_memory(system: System) -> Outcome:
    available = _field(system, "MemAvailable")
    if available < ENOUGH_AVAILABLE_BYTES:
        advice = "End programs that hold memory"
        return degraded(available, "there is hardly any left", advice, "ps aux --sort=-rss", "bytes")
    return works(available, "what can be had now without swapping", unit="bytes")


def _numa_nodes(system: System) -> Outcome:
    nodes = [name for name in system.names("/sys/devices/system/node") if name.removeprefix("node").isdigit()]
    if not nodes:
        return missing(0, "the kernel does not know of NUMA nodes", "Nothing to do: one node is assumed")
    return works(len(nodes), f"memory can be put on {', '.join(nodes)}")


def _huge_pages(system: System) -> Outcome:
    given, reason = system.huge_pages()
    if given:
        return works(2 * 2**20, reason or "the host driver got one when it asked", unit="bytes")
    advice = "Use Linux 6.1 or newer with transparent huge pages on; until then mapping pages is slower"
    return degraded(PAGESIZE, reason, advice, f"cat {_THP}/enabled", "bytes")


def _selected(system: System, path: str) -> str:
    """The word in brackets of "always [madvise] never"."""
    return system.text(path).partition("[")[2].partition("]")[0]


def _anonymous_huge_pages(system: System) -> Outcome:
    mode = _selected(system, f"{_THP}/enabled")
    if mode in ("always", "madvise"):
        return works(mode, "HostMemoryResource(huge_pages=True) gets 2 MiB pages")
    why = "HostMemoryResource(huge_pages=True) gets 4 KiB pages"
    return degraded(mode, why, "Let programs ask", f"echo madvise | sudo tee {_THP}/enabled")


def _shmem_huge_pages(system: System) -> Outcome:
    mode = _selected(system, f"{_THP}/shmem_enabled")
    if mode == "deny":
        command = f"echo never | sudo tee {_THP}/shmem_enabled"
        return degraded(mode, "shared memory never gets 2 MiB pages", "Stop denying them", command)
    why = "tensormem asks for them page by page" if mode == "never" else "the kernel may also give them by itself"
    return works(mode, why)


def _hugetlb(system: System) -> Outcome:
    total, free = _field(system, "HugePages_Total"), _field(system, "HugePages_Free")
    if total == 0:
        return missing(0, "no pages are set aside", "Nothing to do: tensormem does not need them")
    return works(total, f"{free:,} pages set aside are free; tensormem does not need them")


def _memfd(system: System) -> Outcome:
    try:
        holds = system.sealed_memory_holds()
    except OSError as error:
        advice = "Allow memfd_create and fcntl(F_ADD_SEALS), for example in the container's seccomp profile"
        return degraded("", f"memory files cannot be made or sealed: {explain(error)}", advice)
    if not holds:
        return degraded("", "a sealed memory file could still be shrunk", "Use a kernel that keeps seals")
    return works("sealed", "a memory file was made and sealed, and shrinking it was refused")


def _posix_shm(system: System) -> Outcome:
    if not system.exists("/dev/shm"):
        return missing("", "there is no /dev/shm", "Nothing to do: tensormem shares through memfd")
    total, free = system.space("/dev/shm")
    if not system.may_write("/dev/shm"):
        why, advice = "this user may not write to /dev/shm", "Let this user write there"
        return degraded(free, why, advice, "sudo chmod 1777 /dev/shm", "bytes")
    if free < ENOUGH_SHM_BYTES:
        advice = "Free files there, or give a container --shm-size=1g; tensormem itself shares through memfd"
        return degraded(free, "other libraries crash when it is full", advice, "ls -lS /dev/shm", "bytes")
    return works(free, f"free, of {format_size(total)}", unit="bytes")


def _dma_heap(system: System) -> Outcome:
    heaps = system.names("/dev/dma_heap")
    if not heaps:
        advice = "Only boards with DMA hardware need it: a kernel with CONFIG_DMABUF_HEAPS has it"
        return missing("", "there is no /dev/dma_heap", advice)
    usable = [heap for heap in heaps if system.may_write(f"/dev/dma_heap/{heap}")]
    if not usable:
        why, advice = (
            f"this user may not open {', '.join(heaps)}",
            "Add this user to the group of the heaps, often video",
        )
        return degraded(", ".join(heaps), why, advice, "ls -l /dev/dma_heap")
    return works(", ".join(usable), "these heaps can be opened")


def _udmabuf(system: System) -> Outcome:
    device = "/dev/udmabuf"
    if not system.exists(device):
        advice = "Only needed where there is no DMA heap: a kernel with CONFIG_UDMABUF has it"
        return missing("", f"there is no {device}", advice)
    if not system.may_write(device):
        why, advice = f"this user may not open {device}", "Add this user to its group, often kvm"
        return degraded(device, why, advice, f"ls -l {device}")
    return works(device, "it can be opened")


def _opengl(system: System) -> Outcome:
    advice = "Only pixel buffer objects need it: install EGL and a GL driver"
    command = "sudo apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri"
    try:
        extensions = system.egl_extensions()
    except OSError as error:
        return missing("", f"EGL does not load: {explain(error)}", advice, command)
    if _SURFACELESS not in extensions.split():
        return missing("", f"EGL is here, but without {_SURFACELESS}", advice, command)
    return works("EGL", "contexts without a screen are offered")
