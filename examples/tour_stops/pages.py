"""Owns: the stop where 128 GiB of addresses are reserved, and memory comes and goes behind them."""

import ctypes

import tensormem as tm
from tensormem.units import format_size
from tour_stops.guide import Guide
from tour_stops.resident import memory_file_bytes, resident_bytes

TITLE = "Addresses are free, pages are not: 128 GiB reserved, 128 MiB used"
RESERVED_BYTES = 128 * 2**30
PAGE_BYTES = 2 * 2**20
PAGES = 64
NOISE_BYTES = 8 * 2**20


class Diary:
    """What was mapped and what the kernel said, step by step."""

    def __init__(self) -> None:
        self.start = self.last = resident_bytes()
        self.rows: list[tuple[str, ...]] = []
        self.note("at the start", 0)

    def note(self, step: str, mapped_bytes: int) -> int:
        """Adds a row; gives what resident memory has grown by since the start."""
        resident = resident_bytes()
        change = resident - self.last
        sizes = (format_size(mapped_bytes), format_size(resident), f"{'+' if change > 0 else ''}{format_size(change)}")
        self.rows.append((step, *sizes, format_size(memory_file_bytes())))
        self.last = resident
        return resident - self.start


def map_written_page(address: int) -> int:
    """Puts fresh memory behind the address and writes all of it; gives the memory's handle."""
    driver = tm.drivers.host()
    physical = driver.physical_create(PAGE_BYTES)
    driver.map(address, PAGE_BYTES, physical)
    driver.set_access(address, PAGE_BYTES, "read_write")
    ctypes.memset(address, 0x5A, PAGE_BYTES)
    return physical


def show(guide: Guide) -> None:
    driver = tm.drivers.host()
    diary = Diary()
    base = driver.reserve(RESERVED_BYTES, alignment=PAGE_BYTES)
    reserved = diary.note("128 GiB reserved", 0)
    physicals: list[int] = []
    with guide.progress() as progress:
        for index in progress.track(range(PAGES), description="mapping 2 MiB pages"):
            physicals.append(map_written_page(base + index * PAGE_BYTES))
            if len(physicals) % (PAGES // 4) == 0:
                mapped = diary.note(f"{len(physicals)} pages mapped and written", len(physicals) * PAGE_BYTES)
    huge = sum(driver.physical_info(physical)["huge_pages"] for physical in physicals)
    driver.unmap(base, PAGES * PAGE_BYTES)
    unmapped = diary.note("unmapped", 0)
    for physical in physicals:
        driver.physical_destroy(physical)
    kept = memory_file_bytes()
    diary.note("pages destroyed", 0)
    driver.release(base, RESERVED_BYTES)
    diary.note("addresses released", 0)

    guide.table("step", "mapped", "resident", "change", "held in memory files", rows=diary.rows)
    guide.say(f"{huge} of the {PAGES} are real 2 MiB pages of the kernel, {PAGES - huge} are made of small ones")
    guide.expect("reserving 128 GiB took no memory", reserved < NOISE_BYTES)
    guide.expect("mapping and writing 128 MiB made 128 MiB resident", mapped > PAGES * PAGE_BYTES - NOISE_BYTES)
    guide.expect("unmapping took it out of this process, and the addresses stayed", unmapped < NOISE_BYTES)
    guide.expect("destroying the pages gave them back to the system", kept == 0)
