"""native/base/status_codes.hpp and errors.py tell the same story: each native failure has its class and its facts."""

import re
from pathlib import Path

import pytest

from tensormem import errors

HEADER = Path(__file__).parents[2] / "native" / "base" / "status_codes.hpp"
Row = tuple[str, str, tuple[str, ...]]


def rows_of(header: str) -> list[Row]:
    """(code, class, facts) of each row of TM_STATUS_CODES."""
    found = re.findall(r'X\(\s*(\w+),\s*"(\w*)",\s*"([\w,]*)"\s*\)', header)
    return [(code, name, tuple(facts.split(",")) if facts else ()) for code, name, facts in found]


def complaints(rows: list[Row]) -> list[str]:
    """What errors.py does not keep of the promises in `rows`."""
    wrong = []
    for code, name, facts in rows:
        kind = getattr(errors, name, None)
        if not (isinstance(kind, type) and issubclass(kind, errors.TensormemError)):
            wrong.append(f"{code}: errors.py has no class {name}")
        elif kind.__match_args__[: len(facts)] != facts:
            wrong.append(f"{code}: {name} has the facts {kind.__match_args__}, not {facts}")
        elif len(facts) < len(kind.__match_args__) and kind is not errors.DriverError:
            wrong.append(f"{code}: {name} needs {kind.__match_args__[len(facts) :]} too")
    return wrong


ROWS = rows_of(HEADER.read_text())


def test_no_row_of_the_header_is_overlooked() -> None:
    body = HEADER.read_text().partition("TM_STATUS_CODES(X)")[2]
    assert len(ROWS) == body.count("X(") > 0
    assert len({code for code, _, _ in ROWS}) == len(ROWS)


def test_every_native_failure_has_its_class_and_facts_in_order() -> None:
    assert complaints(ROWS) == []


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (("a", "OutOfPotatoes", ()), "a: errors.py has no class OutOfPotatoes"),
        (("b", "from_failure", ()), "b: errors.py has no class from_failure"),
        (
            ("c", "NotMapped", ("size", "offset")),
            "c: NotMapped has the facts ('offset', 'size'), not ('size', 'offset')",
        ),
        (("d", "NotMapped", ("offset",)), "d: NotMapped needs ('size',) too"),
        (("e", "NotSupported", ("reason",)), "e: NotSupported has the facts (), not ('reason',)"),
    ],
)
def test_a_row_that_errors_py_does_not_keep_is_noticed(row: Row, complaint: str) -> None:
    assert complaints([row]) == [complaint]


@pytest.mark.parametrize("row", ROWS, ids=[code for code, _, _ in ROWS])
def test_four_native_numbers_become_the_named_facts(row: Row) -> None:
    _, name, facts = row
    error = errors.from_failure(name, "a broken rule", 11, (11, 22, 33, 44))
    assert type(error).__name__ == name
    numbers = (11e-9,) if name == "TimedOut" else (11, 22, 33, 44)  # native code counts nanoseconds
    assert tuple(getattr(error, fact) for fact in facts) == numbers[: len(facts)]
    assert error.what == "a broken rule"
    assert "a broken rule" in str(error)
