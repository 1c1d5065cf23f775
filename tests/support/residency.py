"""Owns: how much real memory stands behind a range of addresses, whatever else the process holds meanwhile."""

import re

_HEAD = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ")


def resident_bytes(address: int, size: int) -> int:
    """What the kernel counts of the mappings in this range; the heap may grow and shrink at the same time."""
    total = lower = upper = 0
    with open("/proc/self/smaps") as maps:
        for line in maps:
            if head := _HEAD.match(line):
                lower, upper = int(head[1], 16), int(head[2], 16)
            elif line.startswith("Rss:") and address < upper and lower < address + size:
                resident = 1024 * int(line.split()[1])
                # Neighbours without access may be one mapping to the kernel: with no memory there is nothing to divide.
                assert not resident or (address <= lower and upper <= address + size)
                total += resident
    return total
