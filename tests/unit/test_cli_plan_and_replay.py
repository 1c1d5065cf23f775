"""`tensormem plan` and `tensormem replay`: files, exit codes, JSON, and what to type next."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensormem as tm
from tensormem import errors
from tensormem.cli.main import cli
from tensormem.trace import Lifetime, load_plan, replay, replay_spaces, write_lifetimes

KIB = 1024
STEP = [Lifetime("a", 0, 4, 8 * KIB), Lifetime("b", 2, 6, 4 * KIB), Lifetime("c", 4, 8, 8 * KIB)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "step.csv"
    write_lifetimes(STEP, path)
    return path


def run(*arguments: object, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments], input=text)


def test_a_plan_is_written_and_the_next_command_said(trace: Path, tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    result = run("plan", trace, "-o", output, "--no-color")
    assert result.exit_code == 0, result.output
    assert load_plan(output).height == 12 * KIB
    assert "3 blocks in 12 KiB, 1.0000 of the bound, proven optimal" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("Next: tensormem replay")


def test_a_plan_is_not_written_over_without_force(trace: Path, tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    output.write_text("precious")
    refused = run("plan", trace, "-o", output)
    assert (refused.exit_code, output.read_text()) == (2, "precious") and "--force" in refused.stderr
    assert run("plan", trace, "-o", output, "--force").exit_code == 0 and load_plan(output).height == 12 * KIB


def test_a_plan_goes_from_standard_input_to_standard_output(trace: Path) -> None:
    result = run("plan", "-", "-o", "-", text=trace.read_text())
    assert result.exit_code == 0 and json.loads(result.stdout)["schema"] == "tensormem.plan"


def test_a_plan_over_the_capacity_ends_with_1(trace: Path) -> None:
    result = run("plan", trace, "--capacity", "11KiB", "--json", "--alignment", "1")
    outcome = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (outcome["fits"], outcome["capacity"], outcome["height"], outcome["version"]) == (False, 11264, 12288, 1)
    assert run("plan", trace, "--capacity", "12KiB", "-q").stdout == ""


def test_the_places_are_shown_when_asked_for(trace: Path) -> None:
    assert "  b: " in run("plan", trace, "-v").stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("plan", "nowhere.csv"), "nowhere.csv"),
        (("plan", "TRACE", "--capacity", "a lot"), "not a usable size"),
        (("plan", "TRACE", "--alignment", "3"), "cannot align"),
        (("plan", "TRACE", "--time-limit", "-1"), "-1"),
        (("replay", "nowhere.csv"), "nowhere.csv"),
        (("replay", "TRACE", "-r", "pond"), "is not one of"),
        (("replay", "TRACE", "-r", "elastic(a lot)"), "not a usable size"),
        (("replay", "TRACE", "-r", "planned(nowhere.json)"), "nowhere.json"),
    ],
)
def test_a_wrong_command_line_ends_with_2(trace: Path, arguments: tuple[str, ...], complaint: str) -> None:
    result = run(*(trace if each == "TRACE" else each for each in arguments))
    assert result.exit_code == 2 and complaint in result.stderr


def test_a_file_that_is_no_trace_is_refused_by_its_line(trace: Path) -> None:
    trace.write_text(trace.read_text() + "d,5,5,1\n")
    result = run("replay", trace)
    assert result.exit_code == 2 and "line 5" in result.stderr


def test_a_replay_compares_stacks_in_one_table(trace: Path) -> None:
    result = run("replay", trace, "-r", "leaf", "-r", "planned", "--capacity", "1MiB", "--no-color")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1].split() == ["leaf", "yes", "12", "KiB", "12", "KiB", "0.0%", "6", "of", "6"]
    assert lines[2].split()[:2] == ["planned", "yes"]
    assert lines[-1].startswith("Next: tensormem replay") and "\x1b" not in result.stdout


def test_a_replay_that_fits_nowhere_ends_with_1_and_names_the_block(trace: Path) -> None:
    result = run("replay", trace, "-r", "leaf", "--capacity", "9KiB")
    assert result.exit_code == 1
    assert "first failure at event 1, block 'b' of 4 KiB" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("Next: tensormem plan")


def test_a_replay_on_elastic_pages_needs_no_memory_and_keeps_to_the_capacity(trace: Path) -> None:
    fitting = run("replay", trace, "-r", "elastic", "--capacity", "24GiB", "--no-color")
    assert fitting.exit_code == 0, fitting.output
    assert fitting.stdout.splitlines()[1].split()[:6] == ["elastic", "yes", "12", "KiB", "2", "MiB"]
    failing = run("replay", trace, "-r", "elastic", "--capacity", "1MiB")
    assert failing.exit_code == 1
    assert "elastic: first failure at event 0, block 'a' of 8 KiB" in failing.stdout


def test_a_replay_as_json_has_a_version_and_raw_numbers(trace: Path) -> None:
    outcome = json.loads(run("replay", trace, "-r", "leaf", "--json").stdout)
    assert (outcome["schema"], outcome["version"], outcome["capacity"]) == ("tensormem.replay", 2, None)
    assert outcome["replays"][0]["peak_reserved_bytes"] == 12 * KIB
    assert outcome["replays"][0]["samples"][-1] == [6, 0, 0]


def test_a_picture_is_written_where_there_is_none(trace: Path, tmp_path: Path) -> None:
    picture = tmp_path / "replay.svg"
    assert run("replay", trace, "-o", picture, "-q").stdout == ""
    assert picture.read_text().startswith("<svg")
    assert run("replay", trace, "-o", picture).exit_code == 2
    assert json.loads(run("replay", trace, "-o", "-").stdout)["trace"] == str(trace)


def test_waste_over_time_is_shown_when_asked_for(trace: Path) -> None:
    assert "leaf after 6 events: 0.0% wasted" in run("replay", trace, "-r", "leaf", "-v").stdout


@pytest.fixture
def two_spaces(tmp_path: Path) -> Path:
    """600 KiB at once in main memory, and as much in pinned memory."""
    path = tmp_path / "two.tmt"
    main, pinned = tm.mr.HostMemoryResource(), tm.mr.PinnedMemoryResource()
    with tm.trace(path):
        blocks = [(mr, mr.allocate(300 * KIB)) for mr in (main, pinned) for _ in range(2)]
        small = main.allocate(100 * KIB)
        main.deallocate(small)
        for mr, block in blocks:
            mr.deallocate(block)
    return path


def test_a_replay_judges_every_space_by_itself(two_spaces: Path) -> None:
    result = run("replay", two_spaces, "-r", "leaf", "--capacity", "650KiB", "--json")
    outcome = json.loads(result.stdout)
    assert outcome["spaces"] == {"main": False, "pinned": True} and outcome["fits"] is False
    assert result.exit_code == 1
    found = {each["space"]: (each["fits"], each["peak_live_bytes"], each["events"]) for each in outcome["replays"]}
    assert found == {"main": (False, 600 * KIB, 6), "pinned": (True, 600 * KIB, 4)}


def test_a_replay_fits_when_every_space_does_though_their_sum_would_not(two_spaces: Path) -> None:
    result = run("replay", two_spaces, "-r", "leaf", "--capacity", "700KiB", "--no-color")
    assert result.exit_code == 0, result.output
    rows = [line.split()[:3] for line in result.stdout.splitlines()]
    assert ["main", "leaf", "yes"] in rows and ["pinned", "leaf", "yes"] in rows
    assert "overall yes: main fits, pinned fits" in result.stdout


def test_a_space_fits_if_one_of_the_stacks_does(two_spaces: Path) -> None:
    result = run("replay", two_spaces, "-r", "limiting(650KiB)/leaf", "-r", "leaf", "--capacity", "700KiB", "--json")
    outcome = json.loads(result.stdout)
    assert [each["fits"] for each in outcome["replays"]] == [False, True, True, True]
    assert result.exit_code == 0 and outcome["spaces"] == {"main": True, "pinned": True}


def test_a_replay_of_one_space_leaves_the_others_out(two_spaces: Path) -> None:
    result = run("replay", two_spaces, "-r", "leaf", "--capacity", "650KiB", "--space", "pinned", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["spaces"] == {"pinned": True}
    failing = run("replay", two_spaces, "-r", "leaf", "--capacity", "650KiB")
    assert "plan" in failing.stdout and "--space main" in failing.stdout


def test_a_plan_is_for_one_space_and_the_refusal_names_them(two_spaces: Path) -> None:
    refused = run("plan", two_spaces)
    assert refused.exit_code == 2 and "main, pinned" in refused.stderr
    assert run("plan", two_spaces, "--space", "pinned", "-q").exit_code == 0


def test_the_function_wants_a_space_where_there_are_several(two_spaces: Path) -> None:
    with tm.trace.open(two_spaces) as trace:
        with pytest.raises(errors.InvalidArgument, match="main, pinned"):
            replay(trace, "leaf")
        assert replay(trace, "leaf", space="pinned").peak_live == 600 * KIB
        reports = replay_spaces(trace, "leaf", capacity="650KiB")
    assert {space: report.fits for space, report in reports.items()} == {"main": False, "pinned": True}
