"""`tensormem record`, `stats`, `tree`, `diff`, `export`: what they print, write, and end with."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensormem as tm
from support.traces import record_steps
from support.workloads import cases
from tensormem.cli.main import cli
from tensormem.reports.traces.call_sites import source_line
from tensormem.trace import Frame


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "run.tmt"
    record_steps(path)
    return path


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    path = tmp_path / "clean.csv"
    path.write_text("id,lower,upper,size\na,0,4,16\nb,2,6,8\n")
    return path


def run(*arguments: object, **more: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], **more)  # type: ignore[arg-type]


def test_stats_shows_peaks_leaks_and_the_next_command(recording: Path) -> None:
    result = run("stats", recording, "--no-color")
    assert result.exit_code == 1  # something was never given back
    for text in (
        "weights",
        "activations",
        "leaked",
        "never given back",
        "main",
        "PoolMemoryResource",
        "Next: tensormem",
    ):
        assert text in result.stdout
    assert "\x1b" not in result.stdout


def test_stats_of_a_trace_without_findings_ends_with_0(clean: Path) -> None:
    result = run("stats", clean, "-q", "--no-color")
    assert result.exit_code == 0 and "24 B" in result.stdout and "Next" not in result.stdout


def test_stats_as_json_has_a_version_and_raw_numbers(recording: Path) -> None:
    document = json.loads(run("stats", recording, "--json").stdout)
    assert document["version"] == 1 and document["spaces"]["main"]["nbytes"] == document["peak_bytes"] > 64 * 1024
    assert document["kinds"]["counter"] >= 3 and document["failures"] >= 1


def test_stats_writes_to_a_file_and_not_over_one(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "stats.json"
    assert run("stats", recording, "-o", out).exit_code == 1
    before = out.read_bytes()
    assert json.loads(before)["version"] == 1
    refused = run("stats", recording, "-o", out)
    assert refused.exit_code == 2 and "--force" in refused.stderr and out.read_bytes() == before
    assert run("stats", recording, "-o", out, "--force").exit_code == 1


def test_stats_reads_standard_input(recording: Path, clean: Path) -> None:
    assert json.loads(run("stats", "-", "--json", input=clean.read_bytes()).stdout)["peak_bytes"] == 24
    assert json.loads(run("stats", "-", "--json", input=recording.read_bytes()).stdout)["format"] == "tmt"


def test_tree_draws_who_stands_on_whom(recording: Path) -> None:
    result = run("tree", recording, "--no-color")
    host, pool = (result.stdout.index(name) for name in ("HostMemoryResource", "PoolMemoryResource"))
    assert result.exit_code == 0 and host < pool
    (root, *_) = json.loads(run("tree", recording, "--json").stdout)["roots"]
    assert root["name"] == "HostMemoryResource" and root["above"][0]["peak_bytes"] > 64 * 1024


def test_diff_finds_what_grew(clean: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.csv"
    more.write_text("id,lower,upper,size\na,0,4,16\nb,2,6,80\n")
    grown = run("diff", clean, more, "--no-color")
    assert grown.exit_code == 1 and "+72 B" in grown.stdout and "+300.0 %" in grown.stdout
    assert run("diff", more, clean).exit_code == 0
    assert run("diff", clean, clean, "--no-color").exit_code == 0
    document = json.loads(run("diff", clean, more, "--json").stdout)
    assert document["grew"] and document["changes"][0]["difference"] == 72


@pytest.mark.parametrize("name", ["rmm", "torch", "perfetto", "csv", "json", "lifetimes"])
def test_export_writes_beside_the_trace_and_says_what_opens_it(recording: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    result = run("export", recording, "-t", name, "-o", out)
    assert result.exit_code == 0 and out.stat().st_size > 100 and "Next:" in result.stderr
    assert run("export", recording, "-t", name, "-o", out).exit_code == 2
    assert not list(tmp_path.glob(".*partial"))


def test_export_to_standard_output_is_the_document_alone(clean: Path) -> None:
    assert run("export", clean, "-t", "lifetimes", "-o", "-").stdout == clean.read_text()


def test_what_is_no_trace_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "no.tmt"
    path.write_bytes(b"\x89TMT\r\n\x1a\nnothing")
    for command in (["stats", path], ["tree", path], ["diff", path, path], ["export", path, "-t", "csv"]):
        result = run(*command)
        assert result.exit_code == 2 and "at byte 0" in result.stderr and "Traceback" not in result.stderr
    assert run("stats", tmp_path / "missing.tmt").exit_code == 2


def test_record_runs_a_program_and_passes_its_exit_code_on(tmp_path: Path) -> None:
    out = tmp_path / "run.tmt"
    program = "import tensormem as tm, sys; b = tm.mr.HostMemoryResource().allocate(1000, tag='app'); sys.exit(5)"
    record = [sys.executable, "-m", "tensormem", "record", "-o", str(out), "--stacks", "--"]
    result = subprocess.run([*record, sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert result.returncode == 5, result.stderr
    assert "Next: tensormem stats" in result.stderr
    with tm.trace.open(out) as trace:
        (life,) = [life for life in trace.blocks() if life.tag == "app"]
        assert life.nbytes == 1000 and trace.stack(life)[0].function == "<module>"
    again = run("record", "-o", out, "--", sys.executable, "-c", "pass")
    assert again.exit_code == 2 and "--force" in again.stderr


def test_record_that_saw_nothing_says_so_and_passes_the_exit_code_on(tmp_path: Path) -> None:
    result = run("record", "-o", tmp_path / "run.tmt", "--malloc", "off", "--", "true")
    assert result.exit_code == 0 and "Nothing was recorded" in result.stderr
    missing = run("record", "-o", tmp_path / "run.tmt", "--", "there-is-no-such-program")
    assert missing.exit_code == 2


@pytest.mark.parametrize("workload", cases("torch/*.pickle", "somas/resnet*.csv"), indirect=True)
def test_every_verb_works_on_the_files_of_others(workload: Path, tmp_path: Path) -> None:
    path = workload
    assert run("stats", path).exit_code in (0, 1)
    assert run("tree", path).exit_code == 0
    assert run("diff", path, path).exit_code == 0
    for number, kind in enumerate(("rmm", "torch", "perfetto", "csv", "json", "lifetimes")):
        assert run("export", path, "-t", kind, "-o", tmp_path / str(number)).exit_code == 0


def test_stats_shows_the_lines_that_hold_and_that_allocate_with_their_source(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(
        "import tensormem as tm\n"
        "mr = tm.mr.HostMemoryResource()\n"
        "kept = mr.allocate('8MiB')\n"
        "for _ in range(20):\n"
        "    mr.deallocate(mr.allocate('1MiB'))\n"
    )
    out = tmp_path / "run.tmt"
    record = [sys.executable, "-m", "tensormem", "record", "-o", str(out), "--malloc", "off", "--stacks", "--"]
    assert subprocess.run([*record, sys.executable, str(program)], capture_output=True, timeout=200).returncode == 0
    document = json.loads(run("stats", out, "--json").stdout)
    holding, allocating = document["holding_at_peak"][0], document["allocating"][0]
    assert (holding["line"], holding["peak_bytes"], holding["source"]) == (3, 8 * 2**20, "kept = mr.allocate('8MiB')")
    assert (allocating["line"], allocating["nbytes"], allocating["blocks"]) == (5, 20 * 2**20, 20)
    assert document["outstanding"][0]["frames"][0]["line"] == 3
    assert {one["least"]: one["blocks"] for one in document["sizes"]} == {2**20: 20, 8 * 2**20: 1}
    assert sum(share["blocks"] for share in document["by_thread"].values()) == 21
    text = run("stats", out, "--no-color").stdout
    assert "app.py:3 <module>" in text and "mr.deallocate(mr.allocate('1MiB'))" in text


def test_a_trace_cannot_make_stats_read_what_is_not_python(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("password\n")
    os.mkfifo(tmp_path / "pipe.py")
    assert source_line(Frame(str(secret), 1, "f")) == ""
    assert source_line(Frame(str(tmp_path / "pipe.py"), 1, "f")) == ""
    assert source_line(Frame("a\0b.py", 1, "f")) == ""


def test_what_a_library_still_has_at_the_end_is_in_use_and_not_a_finding(tmp_path: Path) -> None:
    out = tmp_path / "run.tmt"
    program = "import numpy as np; kept = np.ones(2**20)"
    record = [sys.executable, "-m", "tensormem", "record", "-o", str(out), "--", sys.executable, "-c", program]
    assert subprocess.run(record, capture_output=True, timeout=200).returncode == 0
    result = run("stats", out, "--no-color")
    assert result.exit_code == 0 and "still in use by libraries" in result.stdout
    document = json.loads(run("stats", out, "--json").stdout)
    assert document["outstanding_blocks"] == 0 and document["in_use_bytes"] >= 8 * 2**20


@pytest.mark.parametrize("verb", ["stats", "tree", "diff"])
def test_text_of_a_trace_cannot_steer_a_terminal(tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    tag = "a\x1b[2Jb\nc\u202ed\x9be"
    path, other = tmp_path / "run.tmt", tmp_path / "other.tmt"
    mr = tm.mr.HostMemoryResource()
    for target, size in ((path, 64), (other, 128)):
        with tm.trace(target):
            kept = mr.allocate(size, tag=tag)
        del kept
    shown = run(verb, path, *([other] if verb == "diff" else []), "--no-color").stdout
    assert not set(shown) & set("\x1b\u202e\x9b")
    assert verb == "tree" or "a\\x1b[2Jb\\nc\\u202ed\\x9be" in shown


def test_names_stay_readable_at_40_columns(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = run("stats", recording, "--no-color").stdout
    for name in ("weights", "activations", "PoolMemoryResource"):
        assert name in shown
