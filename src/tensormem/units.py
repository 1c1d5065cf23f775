"""Owns: sizes and times as people write and read them: "2MiB" to 2097152 and back, seconds to "3.3 us".

Must not know: what the bytes are for. Everything below the public edge speaks plain ints.

Units are spelled exactly: KiB, MiB, GiB, TiB, PiB, EiB are powers of 1024; kB, MB, GB, TB, PB, EB are powers of 1000;
B is a byte. Case matters, because "Mb" is a megabit to some and "KB" 1000 or 1024 bytes depending on whom you ask:
a spelling that could mean two things is refused with the ones it could have been.
"""

from __future__ import annotations

from operator import index

from tensormem.errors import InvalidSize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

MAX_NBYTES = 2**63 - 1
_LONGEST_NUMBER = 128  # 2**-63 EiB has 63 decimals; much longer texts only cost time

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_UNITS: dict[str, int] = (
    {"": 1}
    | {unit: 1024**power for power, unit in enumerate(_BINARY)}
    | {unit: 1000**power for power, unit in enumerate(_DECIMAL)}
)


def parse_size(size: str | SupportsIndex) -> int:
    """The number of bytes that a text, an int, or anything with `__index__` stands for; 0 is allowed.

    A fraction is fine if it comes to whole bytes, digits may be grouped with underscores, and spaces do not matter
    around the number and its unit. Anything else is `InvalidSize`: negative, over 63 bits, a bool, a float.

    >>> parse_size("1.5 GiB"), parse_size("10_000 kB"), parse_size("64"), parse_size(4096)
    (1610612736, 10000000, 64, 4096)
    """
    nbytes = _parse_text(size) if isinstance(size, str) else _parse_number(size)
    if nbytes < 0:
        raise InvalidSize(size, what="it is negative")
    if nbytes > MAX_NBYTES:
        raise InvalidSize(size, what=f"it is over {MAX_NBYTES:,} bytes")
    return nbytes


def _parse_number(size: SupportsIndex) -> int:
    if isinstance(size, bool):
        raise InvalidSize(size, what="a bool is not a size")
    try:
        return index(size)
    except TypeError:
        raise InvalidSize(size, what=f"{type(size).__name__} is neither a whole number nor text") from None


def _parse_text(text: str) -> int:
    stripped = text.strip()
    sign = -1 if stripped.startswith("-") else 1
    unsigned = stripped[1:] if sign < 0 else stripped
    number = unsigned[: len(unsigned) - len(unsigned.lstrip("0123456789_."))]
    unit = unsigned[len(number) :].strip()
    if not 0 < len(number) <= _LONGEST_NUMBER:
        raise InvalidSize(text, what="its number is too long" if number else "it does not start with a number")
    if unit not in _UNITS:
        raise InvalidSize(text, what=_explain_unit(unit))
    whole, point, fraction = number.partition(".")
    scale: int = 10 ** len(fraction.replace("_", ""))
    try:
        # int() knows Python's rules for underscores, and refuses the empty text that "5." or ".5" leave.
        scaled = int(whole) * scale + (int(fraction) if point else 0)
    except ValueError:
        raise InvalidSize(text, what=f"{number!r:.40} is not a number") from None
    nbytes, rest = divmod(scaled * _UNITS[unit], scale)
    if rest:
        raise InvalidSize(text, what="it is not a whole number of bytes")
    return sign * nbytes


def _explain_unit(unit: str) -> str:
    likely = [known for known in _UNITS if known and unit.lower() in _careless_spellings(known)]
    return f"{unit!r:.40} is not a unit" + (f"; did you mean {' or '.join(likely)}?" if likely else "")


def _careless_spellings(unit: str) -> set[str]:
    """What people write for a unit when they do not mind case, the "i" or the "B"."""
    full = unit.lower()
    short = full.replace("i", "")
    return {full, full[:-1], short, short[:-1]}


def format_size(nbytes: int) -> str:
    """Bytes in the largest binary unit that fits, with at most two decimals; a negative size is a difference.

    >>> format_size(1610612736), format_size(512), format_size(-1024), format_size(1234567)
    ('1.5 GiB', '512 B', '-1 KiB', '1.18 MiB')
    """
    magnitude = abs(nbytes)
    power = min(max(magnitude.bit_length() - 1, 0) // 10, len(_BINARY) - 1)
    hundredths = _hundredths(magnitude, power)
    if hundredths >= 102400 and power < len(_BINARY) - 1:  # 1023.999 KiB reads as 1 MiB, not as 1024 KiB
        power += 1
        hundredths = _hundredths(magnitude, power)
    number = f"{hundredths // 100}.{hundredths % 100:02}".rstrip("0").rstrip(".")
    return f"{'-' if nbytes < 0 else ''}{number} {_BINARY[power]}"


def _hundredths(nbytes: int, power: int) -> int:
    """Hundredths of 1024**power bytes, rounded half up in whole numbers: floats would lie past 2**53."""
    unit = 1 << 10 * power
    return (nbytes * 200 + unit) // (2 * unit)


def format_seconds(seconds: float) -> str:
    """A duration in s, ms, us or ns, with three significant digits.

    >>> format_seconds(1.25), format_seconds(3.3e-6), format_seconds(0.0), format_seconds(5e-9)
    ('1.25 s', '3.3 us', '0 s', '5 ns')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        # 0.9995 of a unit already shows as 1 of it with three digits.
        if seconds == 0 or abs(seconds) * scale >= 0.9995:
            return f"{_three_digits(seconds * scale)} {unit}"
    return f"{_three_digits(seconds * 1e9)} ns"


def _three_digits(value: float) -> str:
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    return f"{value:.3g}"
