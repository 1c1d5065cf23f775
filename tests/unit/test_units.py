"""units.py: sizes as people write them, and back."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensormem import units
from tensormem.errors import InvalidSize
from tensormem.units import MAX_NBYTES, format_seconds, format_size, parse_size

BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
DECIMAL = ["B", "kB", "MB", "GB", "TB", "PB", "EB"]
SIZES = st.integers(0, MAX_NBYTES)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("64", 64),
        ("64B", 64),
        ("2MiB", 2 * 1024**2),
        ("2 MiB", 2 * 1024**2),
        ("\t 2  MiB \n", 2 * 1024**2),
        ("1.5 GiB", 3 * 1024**3 // 2),
        ("1.50GiB", 3 * 1024**3 // 2),
        ("0.5KiB", 512),
        ("2.0", 2),
        ("10_000 kB", 10_000_000),
        ("0.000_001 MB", 1),
        ("1.5kB", 1500),
        ("007", 7),
        ("7EiB", 7 * 1024**6),
        (str(MAX_NBYTES), MAX_NBYTES),
    ],
)
def test_a_size_text_is_read(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("power", range(7))
def test_binary_units_are_powers_of_1024_and_decimal_ones_of_1000(power: int) -> None:
    assert parse_size(f"1{BINARY[power]}") == 1024**power
    assert parse_size(f"1{DECIMAL[power]}") == 1000**power


@given(SIZES)
def test_plain_numbers_stand_for_themselves(nbytes: int) -> None:
    assert parse_size(nbytes) == parse_size(str(nbytes)) == parse_size(f"{nbytes:_} B") == nbytes


@given(SIZES, st.sampled_from(BINARY[1:]))
def test_every_size_can_be_written_exactly_in_every_binary_unit(nbytes: int, unit: str) -> None:
    # A power of two divides 10**n exactly after n decimals, so 60 decimals always do.
    scaled = nbytes * 10**60 // 1024 ** BINARY.index(unit)
    assert parse_size(f"{scaled // 10**60}.{scaled % 10**60:060}{unit}") == nbytes


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.uint64])
def test_numpy_integers_are_sizes(kind: type[np.integer]) -> None:
    nbytes = parse_size(kind(100))
    assert nbytes == 100
    assert type(nbytes) is int


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("12 potatoes", "'potatoes' is not a unit"),
        ("", "does not start with a number"),
        ("MiB", "does not start with a number"),
        (" ", "does not start with a number"),
        ("0x10", "'x10' is not a unit"),
        ("1e9", "'e9' is not a unit"),
        ("1.5", "not a whole number of bytes"),
        ("0.3 KiB", "not a whole number of bytes"),
        ("1..5MiB", "'1..5' is not a number"),
        ("1.5.2MiB", "'1.5.2' is not a number"),
        (".5MiB", "'.5' is not a number"),
        ("5.MiB", "'5.' is not a number"),
        ("1__0", "'1__0' is not a number"),
        ("_1", "'_1' is not a number"),
        ("1_", "'1_' is not a number"),
        ("+1", "does not start with a number"),
        ("--1", "does not start with a number"),
        ("- 1", "does not start with a number"),
        ("\u0661\u0662", "does not start with a number"),
        ("1 MiB 2", "'MiB 2' is not a unit"),
        ("1,000", "',000' is not a unit"),
        ("-1", "it is negative"),
        ("-2 MiB", "it is negative"),
        (-1, "it is negative"),
        (2**63, "it is over"),
        ("8EiB", "it is over"),
        ("9" * 129, "too long"),
        (True, "a bool is not a size"),
        (False, "a bool is not a size"),
        (1.0, "float is neither"),
        (None, "NoneType is neither"),
        (b"2MiB", "bytes is neither"),
        ([1], "list is neither"),
        (np.float64(2), "float64 is neither"),
    ],
)
def test_what_is_no_size_is_refused_with_value_and_reason(bad: object, why: str) -> None:
    with pytest.raises(InvalidSize) as caught:
        parse_size(bad)  # type: ignore[arg-type]
    assert caught.value.nbytes is bad
    assert why in caught.value.what


@pytest.mark.parametrize(
    ("careless", "meant"),
    [
        ("64k", "KiB or kB"),
        ("64K", "KiB or kB"),
        ("64KB", "KiB or kB"),
        ("2mib", "MiB"),
        ("2Mi", "MiB"),
        ("2mb", "MiB or MB"),
        ("2g", "GiB or GB"),
        ("8b", "B"),
    ],
)
def test_a_careless_unit_is_refused_with_what_it_could_have_been(careless: str, meant: str) -> None:
    with pytest.raises(InvalidSize, match=f"did you mean {meant}\\?"):
        parse_size(careless)


@given(st.text(max_size=20) | st.from_regex(r"-?[0-9_.]{1,30} ?[kKMGTPEi]{0,2}[bB]?", fullmatch=True))
def test_any_text_is_a_size_or_refused(text: str) -> None:
    try:
        nbytes = parse_size(text)
    except InvalidSize:
        return
    assert 0 <= nbytes <= MAX_NBYTES


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1234567, "1.18 MiB"),
        (1024**2 - 1, "1 MiB"),
        (1024**2 - 6, "1023.99 KiB"),
        (3 * 1024**3 // 2, "1.5 GiB"),
        (128 * 1024**3, "128 GiB"),
        (MAX_NBYTES, "8 EiB"),
        (2**80, "1048576 EiB"),
        (-1536, "-1.5 KiB"),
    ],
)
def test_a_size_is_shown_in_binary_units(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


@given(st.integers(0, 4 * 1023), st.integers(1, 5))
def test_quarters_of_a_unit_survive_the_round_trip(quarters: int, power: int) -> None:
    nbytes = quarters * 1024**power // 4
    assert parse_size(format_size(nbytes)) == nbytes


@given(SIZES)
def test_a_shown_size_is_within_half_a_hundredth_of_its_unit(nbytes: int) -> None:
    number, unit = format_size(nbytes).split()
    hundredths = round(float(number) * 100)
    assert abs(hundredths * 1024 ** BINARY.index(unit) - nbytes * 100) * 2 <= 1024 ** BINARY.index(unit)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (5e-9, "5 ns"),
        (850e-9, "850 ns"),
        (3.3e-6, "3.3 us"),
        (12.345e-3, "12.3 ms"),
        (0.9996e-3, "1 ms"),
        (0.99996, "1 s"),
        (1.25, "1.25 s"),
        (12345.6, "12346 s"),
        (-2e-3, "-2 ms"),
    ],
)
def test_a_duration_is_shown_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@given(st.floats(1e-9, 1e6))
def test_a_shown_duration_is_right_to_three_digits(seconds: float) -> None:
    number, unit = format_seconds(seconds).split()
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    assert float(number) * scale == pytest.approx(seconds, rel=5.1e-3)


def test_examples_in_the_docstrings_run() -> None:
    ran = doctest.testmod(units)
    assert ran.attempted >= 3
    assert ran.failed == 0
