"""A tour of tensormem on this machine's own memory: python examples/tour.py

Owns: the order of the stops and the closing account. Every number shown is measured while you watch, and every "ok" is
a check that could have failed; the tour ends with 1 if one did. Needs the extra `cli`, for rich.
"""

import gc
import sys
import time
from collections.abc import Callable

import tensormem as tm
from tour_stops import blocks, machine, mappings, mistakes, pages, serving, sharing, stacks, streams
from tour_stops.guide import Guide
from tour_stops.resident import memory_file_bytes, resident_bytes

STOPS: tuple[tuple[str, Callable[[Guide], None]], ...] = (
    (machine.TITLE, machine.show),
    (pages.TITLE, pages.show),
    (mappings.TITLE, mappings.show),
    (sharing.TITLE, sharing.show),
    (streams.TITLE, streams.show),
    (blocks.TITLE, blocks.show),
    (mistakes.TITLE, mistakes.show),
    (stacks.TITLE, stacks.show),
    (serving.TITLE, serving.show),
)
NOISE_BYTES = 32 * 2**20  # what Python's own heap, threads and libraries may have grown by


def check_everything_is_back(guide: Guide, before: int) -> None:
    gc.collect()
    after = resident_bytes()
    guide.say(f"resident at the start {tm.units.format_size(before)}, now {tm.units.format_size(after)}")
    guide.expect("resident memory is back where it was", after - before < NOISE_BYTES)
    guide.expect("no page is left in any memory file", memory_file_bytes() == 0)


def main() -> int:
    started = time.perf_counter()
    guide = Guide()
    guide.open("tensormem: a tour of this machine's own memory")
    before = resident_bytes()
    for number, (title, show) in enumerate(STOPS, start=1):
        guide.arrive(number, title)
        show(guide)
    guide.arrive(len(STOPS) + 1, "Everything given back")
    check_everything_is_back(guide, before)
    return guide.close(time.perf_counter() - started)


if __name__ == "__main__":
    sys.exit(main())
