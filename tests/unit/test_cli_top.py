"""`tensormem top`: which process it takes, what it prints, and what it ends with."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensormem as tm
from tensormem.cli.main import cli


@pytest.fixture(autouse=True)
def _place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield
    tm.top.close()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["top", *map(str, arguments)])


def test_the_only_process_is_taken_and_shown_as_a_table() -> None:
    block = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource()).allocate("3MiB")
    tm.top.serve()
    result = run("--once", "--no-color")
    assert result.exit_code == 0 and "\x1b" not in result.stdout
    for text in (f"(pid {os.getpid()})", "Pool #", "3 MiB", "largest", f"Next: tensormem top {os.getpid()}"):
        assert text in result.stdout
    assert "Next" not in run("--once", "-q").stdout and "bytes/s" in run("--once", "-v").stdout
    assert block.nbytes == 3 * 2**20


def test_json_is_one_document_with_a_schema(tmp_path: Path) -> None:
    tm.top.serve()
    document = json.loads(run(os.getpid(), "--once", "--json").stdout)
    assert (document["schema"], document["version"], document["pid"]) == ("tensormem.top", 1, os.getpid())
    out = tmp_path / "now.json"
    assert run("-o", out).exit_code == 0 and json.loads(out.read_text())["schema"] == "tensormem.top"
    assert run("-o", out).exit_code == 2 and run("-o", out, "-f").exit_code == 0


def test_nothing_to_watch_is_a_finding_with_the_remedy() -> None:
    result = run("--once")
    assert result.exit_code == 1 and "TENSORMEM_TOP=1" in result.stderr
    gone = run(2**22 + 1, "--once")
    assert gone.exit_code == 1 and "no such process" in gone.stderr
    assert json.loads(run("--list", "--json").stdout) == {"schema": "tensormem.top.list", "version": 1, "processes": []}


def test_several_processes_are_listed() -> None:
    tm.top.serve()
    program = "import tensormem as tm; tm.mr.HostMemoryResource(); print('ready', flush=True); input()"
    environment = {**os.environ, "TENSORMEM_TOP": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        result = run("--once")
        listed = json.loads(run("--list", "--json").stdout)["processes"]
        process.communicate("\n")
    assert result.exit_code == 1 and str(process.pid) in result.stdout and "Next: tensormem top" in result.stdout
    assert {each["pid"] for each in listed} == {os.getpid(), process.pid}


def test_the_live_screen_needs_a_terminal() -> None:
    tm.top.serve()
    result = run()
    assert result.exit_code == 2 and "--once" in result.stderr


def test_without_textual_the_screen_says_how_to_get_it_and_a_look_works() -> None:
    tm.top.serve()
    hide = "import sys; sys.modules['textual'] = None; sys.argv[0] = 'tensormem'; "
    start = [sys.executable, "-c", hide + "from tensormem.__main__ import main; main()", "top"]
    screen = subprocess.run(start, capture_output=True, text=True)
    assert screen.returncode == 3 and "pip install 'tensormem[top]'" in screen.stderr
    assert subprocess.run([*start, "--once"], capture_output=True, text=True).returncode == 0


def test_a_command_of_ours_is_no_process_to_watch() -> None:
    command = [sys.executable, "-m", "tensormem", "top", "--list", "--json"]
    environment = {**os.environ, "TENSORMEM_TOP": "1"}
    listed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert json.loads(listed.stdout)["processes"] == []
