"""tensormem.trace.lifetimes: the file is read strictly, and the load is what a count by hand gives."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensormem import errors
from tensormem.trace import Lifetime, check_lifetimes, peak_load, read_lifetimes, write_lifetimes

HEADER = "id,lower,upper,size\n"


@st.composite
def lifetime_lists(draw: st.DrawFn) -> list[Lifetime]:
    count = draw(st.integers(0, 12))
    texts = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF).filter(str.isprintable), min_size=1)
    names = draw(st.lists(texts, min_size=count, max_size=count, unique=True))
    made = []
    for name in names:
        lower = draw(st.integers(-20, 20))
        made.append(Lifetime(name, lower, lower + draw(st.integers(1, 9)), draw(st.integers(1, 2**40))))
    return made


@given(lifetime_lists())
def test_what_is_written_is_read_back(lifetimes: list[Lifetime]) -> None:
    text = io.StringIO(newline="")
    write_lifetimes(lifetimes, text)
    text.seek(0)
    assert read_lifetimes(text) == lifetimes


@given(lifetime_lists())
def test_the_peak_load_is_that_of_the_fullest_moment(lifetimes: list[Lifetime]) -> None:
    moments = {lifetime.lower for lifetime in lifetimes}
    loads = [sum(each.size for each in lifetimes if each.lower <= moment < each.upper) for moment in moments]
    assert peak_load(lifetimes) == max(loads, default=0)


def test_a_file_is_read_by_name_and_written_by_name(tmp_path: Path) -> None:
    path = tmp_path / "step.csv"
    write_lifetimes([Lifetime("a", 0, 2, 8)], path)
    assert path.read_text() == HEADER + "a,0,2,8\n"
    assert read_lifetimes(path) == read_lifetimes(str(path)) == [Lifetime("a", 0, 2, 8)]


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("", 1, "the first line is ''"),
        ("id,lower,upper,size,more\n", 1, "not id,lower,upper,size"),
        (HEADER + "a,0,2\n", 2, "3 columns"),
        (HEADER + "a,0,2,8\n\n", 3, "0 columns"),
        (HEADER + "a,0,2,8\nb,0,x,8\n", 3, "'x' is not a whole number"),
        (HEADER + "a,0,2,1_0\n", 2, "'1_0' is not a whole number"),
        (HEADER + "a,0,2, 8\n", 2, "' 8' is not a whole number"),
        (HEADER + "a,0,2,99999999999999999999\n", 2, "19 digits"),
        (HEADER + "a,0,2,9999999999999999999\n", 2, "its size is"),
        (HEADER + "a,2,2,8\n", 2, "the first has to be before the second"),
        (HEADER + "a,0,2,0\n", 2, "its size is 0"),
        (HEADER + "a,0,2,-8\n", 2, "its size is -8"),
        (HEADER + "a,0,2,8\na,3,4,8\n", 3, "'a' is that of line 2 already"),
        (HEADER + ",0,2,8\n", 2, "'' is not an id"),
        (HEADER + '"a,0,2,8\n', 2, "unexpected end of data"),
    ],
)
def test_a_line_that_breaks_a_rule_is_refused_by_its_number(text: str, line: int, complaint: str) -> None:
    with pytest.raises(errors.InvalidLifetimes) as caught:
        read_lifetimes(io.StringIO(text))
    assert caught.value.line == line
    assert complaint in str(caught.value)


@given(st.binary(max_size=200))
def test_no_bytes_at_all_get_past_the_reader_unchecked(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "foreign.csv"
    path.write_bytes(HEADER.encode() + data)
    try:
        read = read_lifetimes(path)
    except errors.InvalidLifetimes as error:
        assert error.line >= 1
    else:
        check_lifetimes(read)


def test_nothing_is_written_when_a_lifetime_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidLifetimes):
        write_lifetimes([Lifetime("a", 0, 2, 8), Lifetime("b", 3, 1, 8)], tmp_path / "step.csv")
    assert not (tmp_path / "step.csv").exists()
