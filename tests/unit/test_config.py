"""config.py: the environment is read once, checked, and frozen."""

import copy
import doctest
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensormem import config
from tensormem.config import COLUMNS, Config, HugePages, describe, get_config
from tensormem.errors import InvalidArgument, InvalidConfig


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh process whose only variables of ours are `variables`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENSORMEM_")}
    return subprocess.run([sys.executable, "-c", program], env=clean | variables, capture_output=True, text=True)


def test_an_empty_environment_gives_the_defaults() -> None:
    defaults = Config.from_environ({})
    assert (defaults.huge_pages, defaults.max_streams) == (HugePages.AUTO, 1024)
    assert defaults == Config()


def test_variables_of_others_are_none_of_our_business() -> None:
    assert Config.from_environ({"PATH": "/bin", "tensormem_max_streams": "7", "MAX_STREAMS": "7"}) == Config()


@given(st.integers(1, 1024), st.sampled_from(["auto", "never"]))
def test_values_of_the_environment_arrive_with_their_types(streams: int, pages: str) -> None:
    made = Config.from_environ({"TENSORMEM_MAX_STREAMS": str(streams), "TENSORMEM_HUGE_PAGES": f" {pages} "})
    assert made.max_streams == streams
    assert made.huge_pages is HugePages(pages)
    assert made == Config(max_streams=streams, huge_pages=pages)


@pytest.mark.parametrize("text", ["0", "1025", "-1", "", " ", "many", "1.5", "0x10", "true", "9" * 5000])
def test_a_number_that_cannot_be_used_is_refused_with_all_facts(text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Config.from_environ({"TENSORMEM_MAX_STREAMS": text})
    assert (caught.value.variable, caught.value.value) == ("TENSORMEM_MAX_STREAMS", text)
    assert caught.value.expected == "a whole number from 1 to 1024"


@pytest.mark.parametrize("text", ["", "AUTO", "always", "1"])
def test_a_choice_that_does_not_exist_is_refused_with_those_that_do(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"auto\|never") as caught:
        Config.from_environ({"TENSORMEM_HUGE_PAGES": text})
    assert (caught.value.variable, caught.value.value) == ("TENSORMEM_HUGE_PAGES", text)


@pytest.mark.parametrize("bad", [0, True, None, 1.5, "many"])
def test_a_config_made_by_hand_is_checked_too(bad: object) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Config(max_streams=bad)
    assert caught.value.value == str(bad)


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no field max_potatoes"):
        Config(max_potatoes=1)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TENSORMEM_MAX_STREAM", r"did you mean TENSORMEM_MAX_STREAMS\?"),
        ("TENSORMEM_HUGEPAGES", r"did you mean TENSORMEM_HUGE_PAGES\?"),
        ("TENSORMEM_XYZ", "it knows TENSORMEM_HUGE_PAGES, TENSORMEM_MAX_STREAMS"),
    ],
)
def test_an_unknown_variable_is_warned_about_with_the_closest_known_one(name: str, hint: str) -> None:
    with pytest.warns(UserWarning, match=f"knows no variable {name}; {hint}"):
        made = Config.from_environ({name: "1"})
    assert made == Config()


@pytest.mark.parametrize("attribute", ["max_streams", "new"])
def test_a_config_cannot_be_changed(attribute: str) -> None:
    made = Config()
    with pytest.raises(AttributeError, match=attribute):
        setattr(made, attribute, 1)
    with pytest.raises(AttributeError, match=attribute):
        delattr(made, attribute)
    assert made == Config()


def test_configs_are_values() -> None:
    one, other = Config(max_streams=2), Config(max_streams=3)
    assert one != other
    assert one != 2
    assert len({one, other, Config(max_streams=2)}) == 2
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    assert eval(repr(one)) == one
    assert repr(one).startswith(
        "Config(huge_pages='auto', max_streams=2, simgpu='off', cuda_library='off', hip_library='off'"
    )


def test_the_environment_is_read_at_the_first_call_only() -> None:
    program = """
import os
from tensormem.config import get_config
os.environ["TENSORMEM_MAX_STREAMS"] = "5"
first = get_config()
os.environ["TENSORMEM_MAX_STREAMS"] = "6"
print(first.max_streams, get_config() is first)
"""
    assert run(program, TENSORMEM_MAX_STREAMS="4").stdout == "5 True\n"


def test_a_wrong_value_raises_at_first_use_and_again_but_not_at_import() -> None:
    program = """
import tensormem.config, tensormem.errors
for attempt in range(2):
    try:
        tensormem.config.get_config()
    except tensormem.errors.InvalidConfig as error:
        print(error)
"""
    said = "TENSORMEM_MAX_STREAMS='lots' cannot be used: it takes a whole number from 1 to 1024. "
    said += "Change the environment variable or unset it.\n"
    assert run(program, TENSORMEM_MAX_STREAMS="lots").stdout == said * 2


def test_an_unknown_variable_is_a_warning_of_the_process() -> None:
    ran = run("import tensormem.config as c; print(c.get_config() == c.Config())", TENSORMEM_MAX_STRAEMS="4")
    assert ran.stdout == "True\n"
    assert "UserWarning: tensormem knows no variable TENSORMEM_MAX_STRAEMS; did you mean" in ran.stderr


def test_every_field_is_described_with_its_current_value() -> None:
    rows = describe(Config(max_streams=7))
    assert all(len(row) == len(COLUMNS) and all(row) for row in rows)
    by_name = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in rows}
    assert by_name.keys() == {f"TENSORMEM_{field.upper()}" for field in Config.__annotations__}
    assert by_name["TENSORMEM_MAX_STREAMS"]["default"] == "1024"
    assert by_name["TENSORMEM_MAX_STREAMS"]["current"] == "7"
    assert by_name["TENSORMEM_HUGE_PAGES"]["type"] == "auto|never"


def test_description_without_a_config_is_that_of_this_process() -> None:
    assert describe() == describe(get_config())


def test_examples_in_the_docstrings_run() -> None:
    ran = doctest.testmod(config)
    assert ran.attempted >= 4
    assert ran.failed == 0


def test_the_reference_lists_every_variable_with_its_default_and_meaning() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/environment.md").read_text()
    for name, expected, default, _current, meaning in describe(Config()):
        assert f"| `{name}` | {expected.replace('|', ' or ')} | `{default}` | {meaning} |" in page


def test_what_workers_of_a_cluster_are_given_is_not_warned_about(recwarn: pytest.WarningsRecorder) -> None:
    Config.from_environ({"TENSORMEM_DECLARATION": "budget=8GiB", "TENSORMEM_NEXT_SETUP_HOOK": "mine.hook"})
    assert not recwarn.list
