"""Owns: sizes as RMM writes them. They are looser than ours (`tensormem.units`): case does not matter, and a fraction
of a byte is dropped. Must not know: what the bytes are for.
"""

import re

from tensormem.public_functions import explain_misspellings

__all__ = ["parse_bytes"]

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]*)?)[\t ]*(?:([kmgtp]?)(i?)b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_bytes(s: int | str) -> int:
    """The number of bytes that a number or a text such as "2kib", "1.5GB" or "64" stands for.

    >>> parse_bytes("2kib"), parse_bytes("1.5 GB"), parse_bytes(64)
    (2048, 1500000000, 64)
    """
    if isinstance(s, int):
        return s
    found = _SIZE.fullmatch(s)
    if found is None or (found[3] and not found[2]):
        raise ValueError(f"Could not parse {s} as a byte specification")
    number, prefix, binary = found.groups()
    whole, _, fraction = number.partition(".")
    unit: int = (1024 if binary else 1000) ** _POWERS[(prefix or "").lower()]
    # In whole numbers: a float would lie past 2**53.
    scale: int = 10 ** len(fraction)
    return int(whole) * unit + int(fraction or "0") * unit // scale


explain_misspellings(globals())
