"""Recordings of processes that are killed, crash, fork, or are told by the environment."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tensormem as tm
from support.python_processes import TIME_LIMIT, check_python, run_python


def tags(path: Path) -> list[str]:
    with tm.trace.open(path) as trace:
        return [event.tag for event in trace.events() if event.kind == "allocate" and event.depth == 0]


def start(source: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_a_process_killed_in_the_middle_leaves_a_file_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    process = start(f"""
        import tensormem as tm
        recording = tm.trace({str(path)!r}).start()
        mr = tm.mr.HostMemoryResource()
        first = mr.allocate(1234, tag="first")
        recording.flush()
        print("flushed", flush=True)
        while True:
            mr.deallocate(mr.allocate(64, tag="busy"))
        """)
    assert process.stdout is not None and process.stdout.readline() == "flushed\n"
    # Not before the recorder has written whole chunks by itself.
    size = path.stat().st_size
    while path.stat().st_size < size + (2 << 20):
        assert process.poll() is None
    process.kill()
    assert process.wait(TIME_LIMIT) == -signal.SIGKILL
    process.stdout.close()
    found = tags(path)
    assert found[0] == "first" and "busy" in found
    with tm.trace.open(path) as trace:
        assert not trace.complete
        assert [life.tag for life in trace.blocks() if life.end_ns is None][:1] == ["first"]


def test_a_crash_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    result = run_python(f"""
        import ctypes, tensormem as tm
        recording = tm.trace({str(path)!r}).start()
        block = tm.mr.HostMemoryResource().allocate(100, tag="before")
        recording.flush()
        ctypes.string_at(0)
        """)
    assert result.returncode == -signal.SIGSEGV
    assert tags(path) == ["before"]


def test_the_end_of_the_interpreter_closes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    check_python(f"""
        import tensormem as tm
        tm.trace({str(path)!r}, flush_interval=3600).start()
        block = tm.mr.HostMemoryResource().allocate(100, tag="last words")
        """)
    assert tags(path) == ["last words"]
    with tm.trace.open(path) as trace:
        assert trace.complete


def test_a_forked_child_leaves_the_file_of_its_parent_alone(tmp_path: Path) -> None:
    path, other = tmp_path / "run.tmt", tmp_path / "child.tmt"
    check_python(f"""
        import os, tensormem as tm
        mr = tm.mr.HostMemoryResource()
        recording = tm.trace({str(path)!r}).start()
        before = mr.allocate(100, tag="parent before")
        child = os.fork()
        if child == 0:
            quiet = mr.allocate(100, tag="child, unrecorded")
            with tm.trace({str(other)!r}):
                loud = mr.allocate(100, tag="child, recorded")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        after = mr.allocate(100, tag="parent after")
        recording.stop()
        """)
    assert tags(path) == ["parent before", "parent after"]
    assert tags(other) == ["child, recorded"]


def test_the_environment_starts_a_recording_and_children_keep_out_of_it(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    process = start(
        """
        import os, subprocess, sys
        import tensormem as tm
        block = tm.mr.HostMemoryResource().allocate(100, tag="parent")
        program = "import tensormem as tm; b = tm.mr.HostMemoryResource().allocate(100, tag='spawned')"
        subprocess.run([sys.executable, "-c", program], check=True)
        child = os.fork()
        if child == 0:
            forked = tm.mr.HostMemoryResource().allocate(100, tag="forked")
            os._exit(0)
        os.waitpid(child, 0)
        """,
        TENSORMEM_TRACE=str(path),
    )
    assert process.communicate(timeout=TIME_LIMIT) is not None and process.returncode == 0
    assert tags(path) == ["parent"]
    assert [file.name for file in tmp_path.iterdir()] == ["run.tmt"]


def test_with_the_process_in_its_name_every_process_has_a_file(tmp_path: Path) -> None:
    process = start(
        """
        import os
        import tensormem as tm
        mr = tm.mr.HostMemoryResource()
        block = mr.allocate(100, tag="parent")
        child = os.fork()
        if child == 0:
            forked = mr.allocate(100, tag="child")
            tm._core.stop_recording()
            os._exit(0)
        os.waitpid(child, 0)
        """,
        TENSORMEM_TRACE=str(tmp_path / "run-{pid}.tmt"),
        TENSORMEM_TRACE_STACKS="1",
    )
    process.communicate(timeout=TIME_LIMIT)
    assert process.returncode == 0
    files = {file.name: tags(file) for file in tmp_path.iterdir()}
    assert files.pop(f"run-{process.pid}.tmt") == ["parent"]
    assert list(files.values()) == [["child"]]
    with tm.trace.open(tmp_path / f"run-{process.pid}.tmt") as trace:
        assert trace.names.stacks


def test_the_environment_replaces_an_older_trace_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    program = "import tensormem as tm; b = tm.mr.HostMemoryResource().allocate(100, tag='again')"
    for _ in range(2):
        process = start(program, TENSORMEM_TRACE=str(path))
        process.communicate(timeout=TIME_LIMIT)
        assert process.returncode == 0 and tags(path) == ["again"]
    path.write_text("somebody's work")
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        env={**os.environ, "TENSORMEM_TRACE": str(path)},
    )
    assert result.returncode == 0 and "nothing is recorded" in result.stderr
    assert path.read_text() == "somebody's work"


def test_tags_can_be_used_in_a_forked_child() -> None:
    check_python("""
        import os, tensormem as tm
        mr = tm.mr.HostMemoryResource()
        with tm.tag("parent"):
            block = mr.allocate(10)
        child = os.fork()
        if child == 0:
            with tm.tag("a new one"):
                tag = mr.allocate(10).tag
            os._exit(0 if tag == "a new one" else 1)
        assert os.waitpid(child, 0)[1] == 0
        """)


@pytest.mark.parametrize("interval", [0, -1, 10**6])
def test_a_flush_interval_that_makes_no_sense_is_refused(tmp_path: Path, interval: int) -> None:
    with (
        pytest.raises(tm.errors.InvalidArgument, match="flush interval"),
        tm.trace(tmp_path / "run.tmt", flush_interval=interval),
    ):
        pass
