"""What holds for every verb of `tensormem`: the same options, the same meaning, nothing overwritten, a next step."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import tensormem as tm
from support.traces import record_steps
from tensormem.cli.main import cli

VERBS = sorted(cli.commands)
SCREEN = {"--json", "--no-color", "-q", "--quiet", "-v", "--verbose"}
OUTPUT = {"-o", "--output", "-f", "--force"}
WRITE_NOTHING = {"view"}  # shows a page and keeps no file
# A command line for every verb that ends by itself, up to its options.
TRACE_VERBS = {
    "stats": ("stats", "{trace}"),
    "tree": ("tree", "{trace}"),
    "diff": ("diff", "{trace}", "{trace}"),
    "replay": ("replay", "{trace}", "-r", "pool"),
    "plan": ("plan", "{trace}", "--time-limit", "0.1"),
    "export": ("export", "{trace}", "-t", "csv"),
}
OTHER_VERBS = {
    "doctor": ("doctor",),
    "top": ("top", str(os.getpid()), "--once"),
    "selftest": ("selftest", "--device", "host"),
    "record": ("record", "-o", "{target}"),
    "merge": ("merge", "{trace}", "{trace}", "-o", "{target}"),
    "report": ("report", "{trace}"),
}
RUN = {**TRACE_VERBS, **OTHER_VERBS}
# Quick, and alike on standard output or the other.
SHOWN = [verb for verb in RUN if verb not in ("selftest", "record", "merge")]
PROGRAM = ("--", sys.executable, "-c", "import tensormem as tm; tm.mr.HostMemoryResource().allocate(64)")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("rules") / "run.tmt"
    record_steps(path)
    return path.read_bytes()


@pytest.fixture
def trace(recording: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "run.tmt"
    path.write_bytes(recording)
    return path


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A directory and a place for sockets of its own; this process can be watched."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with tm.top.serve():
        yield


def run(verb: str, trace: Path, *options: str, target: Path | None = None) -> Result:
    line = [part.format(trace=trace, target=target) for part in RUN[verb]]
    return CliRunner().invoke(cli, [*line, *options])


def forced(verb: str) -> tuple[str, ...]:
    """For a verb that writes beside the trace, when it runs for the second time."""
    return ("-f",) if verb in ("export", "report") else ()


def options_of(verb: str) -> dict[str, click.Option]:
    return {
        name: option
        for option in cli.commands[verb].params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }


@pytest.mark.parametrize("verb", VERBS)
def test_the_common_options_are_there_and_mean_the_same(verb: str) -> None:
    options = options_of(verb)
    missing = (SCREEN if verb in WRITE_NOTHING else SCREEN | OUTPUT) - options.keys()
    assert not missing, f"{verb} has no {missing}"
    meanings = {"--json": "as_json", "--no-color": "no_color", "-q": "quiet", "-v": "verbose"}
    meanings |= {} if verb in WRITE_NOTHING else {"-o": "output", "-f": "force"}
    assert {short: options[short].name for short in meanings} == meanings


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_says_what_a_verb_does_in_one_line(verb: str) -> None:
    result = CliRunner().invoke(cli, [verb, "-h"])
    assert result.exit_code == 0 and cli.commands[verb].get_short_help_str(200)


@pytest.mark.parametrize("verb", sorted(RUN))
def test_a_file_that_is_there_is_not_written_over_but_by_force(verb: str, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("mine")
    rest = PROGRAM if verb == "record" else ()
    where = () if verb in ("record", "merge") else ("-o", str(out))
    refused = run(verb, trace, *where, *rest, target=out)
    assert refused.exit_code == 2 and "--force" in refused.stderr and out.read_text() == "mine"
    forced = run(verb, trace, *where, "-f", *rest, target=out)
    assert forced.exit_code in (0, 1) and out.read_bytes() != b"mine", forced.output
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith("partial")] == []


@pytest.mark.parametrize("verb", SHOWN)
def test_json_is_one_document_with_a_version_and_nothing_else(verb: str, trace: Path) -> None:
    document = json.loads(run(verb, trace, "--json").stdout)
    assert document["version"] == (2 if verb == "replay" else 1)


@pytest.mark.parametrize("verb", [verb for verb in SHOWN if verb not in ("export", "report")])
def test_dash_writes_the_document_to_standard_output(verb: str, trace: Path) -> None:
    assert json.loads(run(verb, trace, "-o", "-").stdout)


@pytest.mark.parametrize("verb", sorted(TRACE_VERBS))
def test_dash_reads_a_trace_from_standard_input(verb: str, trace: Path) -> None:
    line = list(TRACE_VERBS[verb])
    line[1] = "-"
    line = [part.format(trace=trace) for part in line]
    assert CliRunner().invoke(cli, line, input=trace.read_bytes()).exit_code in (0, 1)


@pytest.mark.parametrize("verb", SHOWN)
def test_the_last_line_is_the_next_command_unless_quiet(verb: str, trace: Path) -> None:
    result = run(verb, trace)
    assert result.output.rstrip().splitlines()[-1].startswith("Next: ")
    assert "Next: " not in run(verb, trace, "-q", *forced(verb)).output


@pytest.mark.parametrize("verb", SHOWN)
@pytest.mark.parametrize("how", ["--no-color", "NO_COLOR"])
def test_no_escape_codes_when_colours_are_not_wanted(
    verb: str, how: str, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    if how == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    options = (how,) if how.startswith("--") else ()
    result = run(verb, trace, *options, *forced(verb))
    assert result.exit_code in (0, 1) and "\x1b" not in result.output


def test_colours_are_there_when_they_are_wanted(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" in run("stats", trace).output


def test_what_a_recording_says_goes_to_standard_error(trace: Path, tmp_path: Path) -> None:
    plain = run("record", trace, "-v", *PROGRAM, target=tmp_path / "a.tmt")
    assert plain.exit_code == 0 and plain.stdout == "" and "bytes" in plain.stderr
    assert plain.stderr.rstrip().splitlines()[-1].startswith("Next: ")
    facts = json.loads(run("record", trace, "--json", *PROGRAM, target=tmp_path / "b.tmt").stderr)
    assert facts["version"] == 1 and facts["events"] > 0 and facts["exit_code"] == 0
    assert run("record", trace, "-q", *PROGRAM, target=tmp_path / "c.tmt").output == ""
