"""What `make` does where something is missing: one sentence that says what to do, and the next `make` goes on."""

import io
import os
import re
import signal
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"


def run_python(program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *words]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    yield
    for name in ("progress", "project_lock", "toolchain"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("scripts")
def test_the_count_of_ninja_is_shown_now_and_then_where_lines_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    import progress

    monkeypatch.setattr(progress, "SPARSE_SECONDS", 0.0)
    stream = io.StringIO()
    shown = progress.Progress("building", stream)
    shown.saw("  [3/120] Compiling C++ object native/lib.so.p/alloc_block_table.cpp.o")
    shown.saw("In file included from somewhere")
    monkeypatch.setattr(progress, "SPARSE_SECONDS", 3600.0)
    shown.saw("  [4/120] Compiling C++ object native/lib.so.p/alloc_other.cpp.o")
    shown.end()
    first, second, third = stream.getvalue().splitlines()
    assert first == "building ..." and third.startswith("building: ") and third.endswith(" s")
    assert second.startswith("building: 3 of 120, ") and second.endswith("alloc_block_table.cpp.o")


def test_the_count_is_written_over_on_a_terminal() -> None:
    program = "import progress, sys; sys.exit(progress.run('building', '/bin/echo', '[3/120] one thing')[0])"
    ours, theirs = os.openpty()
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, stdout=theirs, timeout=60)
    os.close(theirs)
    seen = b""
    with open(ours, "rb", buffering=0) as terminal:
        while not seen.endswith(b" s\r\n"):
            seen += terminal.read(4096)
    assert ended.returncode == 0
    assert b"\r\x1b[Kbuilding: 3 of 120" in seen and seen.count(b"\n") == 1


def test_a_step_that_is_stopped_says_that_the_same_command_goes_on() -> None:
    # The child tells that it runs by its count, which is shown at once, because no time has to pass between lines.
    program = (
        "import progress; progress.SPARSE_SECONDS = 0.0;"
        "progress.run('building', '/bin/sh', '-c', 'echo \"[1/2] begun\"; exec sleep 100')"
    )
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    # Where a shell started the tests in the background, SIGINT is ignored by everything below.
    with subprocess.Popen(
        [sys.executable, "-c", f"import signal; signal.signal(2, signal.default_int_handler); {program}"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while "1 of 2" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert "the same command goes on from here" in process.stdout.read()
    assert process.returncode == 130


def test_no_compiler_is_one_sentence_with_what_to_install(tmp_path: Path) -> None:
    program = "import toolchain; print(toolchain.what_is_missing())"
    said = run_python(program, PATH=str(tmp_path), CXX="").stdout
    assert said.startswith("No C++ compiler was found.") and "g++" in said and said.count("\n") == 1
    named = run_python(program, CXX="no-such-compiler").stdout
    assert named.startswith("CXX=no-such-compiler is not a program")
    assert run_python(program, CXX=f"{sys.executable} -E").stdout == "None\n"


@pytest.mark.usefixtures("scripts")
def test_missing_headers_are_one_sentence_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import toolchain

    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    missing = toolchain.what_is_missing()
    assert missing is not None and f"{tmp_path}/Python.h" in missing and "-dev" in missing
    (tmp_path / "Python.h").touch()
    assert toolchain.what_is_missing() is None


def test_pip_without_a_network_is_told_in_one_sentence(tmp_path: Path) -> None:
    # A port on which nobody listens: what pip says then is what it says without a network.
    pip = (
        "-m",
        "pip",
        "install",
        "--retries=1",
        "--target",
        str(tmp_path),
        "--index-url=http://127.0.0.1:9/",
        "nothing",
    )
    said = subprocess.run([sys.executable, *pip], capture_output=True, text=True, timeout=60)
    assert said.returncode != 0
    program = "import sys, toolchain; print(toolchain.why_it_failed(sys.stdin.read()))"
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    why = subprocess.run(
        command, env=environment, input=said.stdout + said.stderr, capture_output=True, text=True, timeout=60
    ).stdout
    assert why.startswith("Packages could not be fetched") and why.count("\n") == 1


def test_an_old_python_is_refused_by_name(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(old.stat().st_mode | stat.S_IXUSR)
    ended = subprocess.run(
        [SCRIPTS / "find_python.sh"], env={**os.environ, "PYTHON": str(old)}, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert ended.stderr == f"PYTHON={old} is not a Python 3.11 or newer.\n"


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    # A file where the folder would be: root may write into a read-only folder, but not into this one.
    (tmp_path / ".cache").touch()
    program = "import sys, pathlib, project_lock\nwith project_lock.project_lock(pathlib.Path(sys.argv[1])): pass"
    ended = run_python(program, str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"Nothing can be written in {tmp_path} (") and ended.stderr.count("\n") == 1


def test_the_second_of_two_builds_waits_for_the_first_and_names_it(tmp_path: Path) -> None:
    hold = (
        "import sys, pathlib, project_lock\n"
        "with project_lock.project_lock(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", hold, str(tmp_path)]
        return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with start() as first:
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        with start() as second:
            assert second.stdout is not None
            assert second.stdout.readline() == f"waiting for process {first.pid}, which is building here\n"
            first.kill()  # however it ends, the lock is free
            assert second.stdout.readline() == "held\n"
            second.communicate("\n")
        assert second.returncode == 0


def test_the_demo_asks_for_no_browser_and_no_virtual_machine() -> None:
    lists = {path.stem: path.read_text() for path in (SCRIPTS / "system-packages").glob("*.txt")}
    assert set(lists) == {"arm", "build", "test"}
    assert "chromium" in lists["test"] and "qemu" in lists["test"]
    assert "chromium" not in lists["build"] and "qemu" not in lists["build"] and "g++" in lists["build"]
    assert "scripts/setup.sh build\n" in (ROOT / "Makefile").read_text()


@pytest.mark.usefixtures("scripts")
def test_a_build_folder_that_was_never_configured_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import environment

    monkeypatch.setattr(environment, "ROOT", tmp_path)
    half = tmp_path / "build" / "meson-private"
    half.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("")
    ours = environment.Environment(".venv")
    ours.drop_half_configured()
    assert not half.exists()
    half.mkdir(parents=True)
    (tmp_path / "build" / "build.ninja").touch()
    ours.drop_half_configured()
    assert half.exists()


def test_a_python_that_is_not_to_be_had_is_named_with_what_to_do(tmp_path: Path) -> None:
    program = "import interpreters; interpreters.main()"
    nowhere = {"PYTHONS": str(tmp_path), "PYENV_ROOT": str(tmp_path), "PATH": "/usr/bin:/bin"}
    said = run_python(program, "3.12", **nowhere)
    assert said.returncode == 1 and said.stderr.count("\n") == 1
    assert "Python 3.12 was not found" in said.stderr and "so that python3.12 is on the path" in said.stderr
    said = run_python(program, "3.9", **nowhere)
    assert said.returncode == 1 and said.stderr.startswith("3.9 is not a Python that tensormem runs on: 3.11, 3.12")


def test_an_interpreter_that_does_not_run_is_not_taken(tmp_path: Path) -> None:
    broken = tmp_path / "3.12" / "bin" / "python3.12"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    said = run_python("import interpreters; interpreters.main()", "3.12", PYTHONS=str(tmp_path), PYENV_ROOT="/nowhere")
    assert str(broken) not in said.stdout


def test_a_lock_holds_for_its_own_python_machine_and_tools_alone() -> None:
    program = """
import lock, sys
first = (lock.FOLDER / "test.txt").read_text().splitlines()[0]
lock.holds_for = lambda: first.removeprefix("# test, ").split(". Renew")[0]
print(lock.lock_of("test") is not None)
lock.holds_for = lambda: "Python 3.9 on Plan9 sparc"
print(lock.lock_of("test") is not None)
lock.requirements = lambda group: ["pytest>=8.3,<9000", "pytest[dev]>=9000", "torch==2.13.0", "nothing-of-the-kind"]
print(lock.lacks("test"))
lock.holds_for = lambda: first.removeprefix("# test, ").split(". Renew")[0]
print(lock.what_is_stale("test"))
"""
    said = run_python(program)
    lines = said.stdout.splitlines()
    assert lines[:3] == ["True", "False", "['pytest[dev]>=9000', 'nothing-of-the-kind']"], said.stderr
    assert lines[3].startswith("locks/test.txt does not have pytest[dev]>=9000, nothing") and "make lock" in lines[3]


def test_locks_hold_digests_and_no_address() -> None:
    for path in sorted((ROOT / "locks").glob("*.txt")):
        heading, *lines = path.read_text().splitlines()
        assert lines and "make lock" in heading
        assert [line for line in lines if not re.fullmatch(r"[a-z0-9._-]+==\S+ --hash=sha256:[0-9a-f]{64}", line)] == []
