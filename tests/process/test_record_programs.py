"""`tensormem record` of programs that know nothing of tensormem: what is seen, once each, and what is passed on."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tensormem as tm
from support.python_processes import TIME_LIMIT
from tensormem.trace import BlockLife, Trace

MIB = 2**20


def record(output: Path, program: str, *options: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs a Python program under `tensormem record`."""
    command = [sys.executable, "-m", "tensormem", "record", "-o", str(output), *options, "--"]
    command += [sys.executable, *python, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)


def recorded(output: Path, program: str, *options: str, python: tuple[str, ...] = ()) -> Trace:
    """The trace of a program that has to end well."""
    result = record(output, program, *options, python=python)
    assert result.returncode == 0, result.stderr
    return tm.trace.open(output)


def blocks(trace: Trace, *, tag: str = "", least: int = MIB) -> list[BlockLife]:
    """Those of a tag, by the time they began."""
    found = [life for life in trace.blocks() if life.nbytes >= least and tag in ("", life.tag)]
    return sorted(found, key=lambda life: life.start_ns or 0)


LIBC = """
    import ctypes
    libc = ctypes.CDLL(None)
    for name in "malloc calloc realloc reallocarray aligned_alloc memalign valloc mmap mremap".split():
        getattr(libc, name).restype = ctypes.c_void_p
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    MIB = 2**20
"""


def libc_blocks(output: Path, body: str) -> list[tuple[int, bool]]:
    """(size, whether it ended) of what ctypes asked of the C library, in order. Its caller is libffi."""
    trace = recorded(output, textwrap.dedent(LIBC) + textwrap.dedent(body), "--malloc", "1MiB")
    with trace:
        ours = {number for number, one in trace.names.reporters.items() if one.name.startswith("libffi")}
        return [(life.nbytes, life.end_ns is not None) for life in blocks(trace) if life.resource in ours]


def test_numpy_arrays_are_seen_with_their_line_and_counted_once(tmp_path: Path) -> None:
    program = """
        import numpy as np
        def make():
            return np.ones(2**20)
        kept = make()
        del kept
        left = np.zeros((2**18, 3))
    """
    with recorded(tmp_path / "run.tmt", program, "--stacks") as trace:
        seen = [life for life in blocks(trace, tag="numpy") if trace.names.resource(life.resource).startswith("numpy")]
        assert [(life.nbytes, life.end_ns is None) for life in seen] == [(8 * MIB, False), (6 * MIB, True)]
        # np.ones itself is written in Python.
        assert [(frame.function, frame.line) for frame in trace.stack(seen[0])[1:]] == [("make", 4), ("<module>", 5)]
        same = [life for life in blocks(trace) if life.address == seen[0].address and life.nbytes == 8 * MIB]
        assert same == [seen[0]]
        assert {life.space for life in seen} == {"main"}


def test_numpy_arrays_of_other_threads_are_seen(tmp_path: Path) -> None:
    program = """
        import threading
        import numpy as np
        workers = [threading.Thread(target=lambda: np.ones(2**20).sum()) for _ in range(4)]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
    """
    with recorded(tmp_path / "run.tmt", program) as trace:
        arrays = [life for life in blocks(trace, tag="numpy", least=8 * MIB) if life.nbytes == 8 * MIB]
        assert len(arrays) == 4 and len({life.thread for life in arrays}) == 4
        assert all(life.end_ns is not None for life in arrays)


def test_without_the_numpy_hook_its_library_is_the_owner(tmp_path: Path) -> None:
    program = "import numpy as np; kept = np.ones(2**20)"
    with recorded(tmp_path / "run.tmt", program, "--no-numpy") as trace:
        (array,) = [life for life in blocks(trace, tag="numpy") if life.nbytes == 8 * MIB]
        assert "_multiarray_umath" in trace.names.resource(array.resource)


def test_pytorch_on_the_cpu_is_seen_with_its_line_though_it_lets_the_gil_go(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """
        import torch
        def forward(x):
            return x @ x
        x = torch.ones(1024, 1024)
        y = forward(x)
    """
    with recorded(tmp_path / "run.tmt", program, "--stacks") as trace:
        tensors = [life for life in blocks(trace, tag="torch") if life.nbytes == 4 * MIB]
        assert [trace.stack(life)[0].line for life in tensors] == [5, 4]
        assert trace.stack(tensors[1])[0].function == "forward"


def test_every_function_of_the_c_library_is_seen(tmp_path: Path) -> None:
    seen = libc_blocks(
        tmp_path / "run.tmt",
        """
        a = libc.malloc(size(2 * MIB)); libc.free(pointer(a))
        a = libc.calloc(size(3), size(MIB)); libc.free(pointer(a))
        a = libc.aligned_alloc(size(4096), size(4 * MIB)); libc.free(pointer(a))
        a = libc.memalign(size(64), size(5 * MIB)); libc.free(pointer(a))
        a = libc.valloc(size(6 * MIB)); libc.free(pointer(a))
        b = pointer(); libc.posix_memalign(ctypes.byref(b), size(64), size(7 * MIB)); libc.free(b)
        a = libc.reallocarray(None, size(8), size(MIB))
        """,
    )
    assert seen == [(n * MIB, True) for n in range(2, 8)] + [(8 * MIB, False)]


def test_a_block_that_is_resized_ends_and_begins_and_one_that_is_not_stays(tmp_path: Path) -> None:
    seen = libc_blocks(
        tmp_path / "run.tmt",
        """
        a = libc.malloc(size(2 * MIB))
        assert libc.realloc(pointer(a), size(2**62)) is None
        a = libc.realloc(pointer(a), size(3 * MIB))
        a = libc.realloc(pointer(a), size(100))
        libc.free(pointer(a))
        a = libc.malloc(size(100))
        a = libc.realloc(pointer(a), size(4 * MIB))
        """,
    )
    assert seen == [(2 * MIB, True), (3 * MIB, True), (4 * MIB, False)]


def test_pages_are_seen_in_parts_and_reserved_addresses_are_not(tmp_path: Path) -> None:
    seen = libc_blocks(
        tmp_path / "run.tmt",
        """
        READ_WRITE, NONE, PRIVATE_ANONYMOUS, MAY_MOVE = 3, 0, 0x22, 1
        def map(nbytes, protection):
            return libc.mmap(None, size(nbytes), protection, PRIVATE_ANONYMOUS, -1, ctypes.c_long(0))
        map(512 * MIB, NONE)
        a = map(8 * MIB, READ_WRITE)
        libc.munmap(pointer(a + 2 * MIB), size(MIB))
        libc.munmap(pointer(a), size(2 * MIB))
        libc.munmap(pointer(a), size(8 * MIB))
        a = map(3 * MIB, READ_WRITE)
        a = libc.mremap(pointer(a), size(3 * MIB), size(9 * MIB), MAY_MOVE)
        """,
    )
    assert sorted(seen) == sorted(
        [(8 * MIB, True), (2 * MIB, True), (5 * MIB, True), (3 * MIB, True), (9 * MIB, False)]
    )


def test_what_tensormem_hands_out_is_not_counted_again(tmp_path: Path) -> None:
    program = """
        import tensormem as tm
        pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
        block = pool.allocate("32MiB", tag="weights")
        array = tm.zeros((2**20,), dtype="float64")
    """
    with recorded(tmp_path / "run.tmt", program) as trace:
        assert trace.peaks("tag")["weights"].nbytes == 32 * MIB
        assert sum(life.nbytes for life in blocks(trace, least=4 * MIB)) == 40 * MIB


def test_blocks_below_the_size_are_not_recorded(tmp_path: Path) -> None:
    program = "import numpy as np; a = np.ones(2**18); b = np.ones(2**20)"
    with recorded(tmp_path / "run.tmt", program, "--malloc", "4MiB") as trace:
        assert [life.nbytes for life in trace.blocks() if life.nbytes < 4 * MIB] == []
        assert [life.nbytes for life in blocks(trace, tag="numpy") if life.nbytes == 8 * MIB] == [8 * MIB]


def test_nothing_is_looked_at_that_was_not_asked_for(tmp_path: Path) -> None:
    program = "import numpy as np; a = np.ones(2**20)"
    with recorded(tmp_path / "run.tmt", program, "--malloc", "off", "--no-numpy") as trace:
        assert list(trace.blocks()) == []


def test_python_that_reads_no_environment_is_seen_without_its_calls(tmp_path: Path) -> None:
    program = "import numpy as np; a = np.ones(2**20)"
    with recorded(tmp_path / "run.tmt", program, "--stacks", python=("-I",)) as trace:
        (array,) = [life for life in blocks(trace, tag="numpy") if life.nbytes == 8 * MIB]
        assert trace.stack(array) == ()


def test_a_forked_child_leaves_the_file_alone(tmp_path: Path) -> None:
    program = """
        import os
        import numpy as np
        child = os.fork()
        if child == 0:
            wasted = np.ones(2**22 + 1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        kept = np.ones(2**20)
    """
    with recorded(tmp_path / "run.tmt", program) as trace:
        assert trace.complete
        sizes = [life.nbytes for life in blocks(trace, tag="numpy")]
        assert 8 * MIB in sizes and 32 * MIB + 8 not in sizes
    assert [path.name for path in tmp_path.iterdir()] == ["run.tmt"]


def test_children_that_fork_or_exec_have_files_of_their_own(tmp_path: Path) -> None:
    program = """
        import os, subprocess, sys
        import numpy as np
        child = os.fork()
        if child == 0:
            forked = np.ones(2**21)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        subprocess.run([sys.executable, "-c", "import numpy; a = numpy.ones(2**22 + 1)"], check=True)
    """
    result = record(tmp_path / "run.tmt", program, "--follow-children")
    assert result.returncode == 0, result.stderr
    whole, found = True, set()
    for path in tmp_path.glob("run-*.tmt"):
        with tm.trace.open(path) as trace:
            whole &= trace.complete
            found |= {life.nbytes for life in blocks(trace, tag="numpy")}
    assert whole and {16 * MIB, 32 * MIB + 8} <= found
    assert "tensormem merge" in result.stderr


def test_the_program_that_a_process_becomes_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    program = f"exec {sys.executable} -c 'import numpy; a = numpy.ones(2**20)'"
    command = [sys.executable, "-m", "tensormem", "record", "-o", str(path), "--", "sh", "-c", program]
    assert subprocess.run(command, capture_output=True, timeout=TIME_LIMIT).returncode == 0
    with tm.trace.open(path) as trace:
        assert 8 * MIB in [life.nbytes for life in blocks(trace, tag="numpy")]


def test_the_sitecustomize_of_the_user_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.it_ran = True")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    program = "import sys; assert it_ran; assert not any('startup' in folder for folder in sys.path)"
    command = [sys.executable, "-m", "tensormem", "record", "-o", str(tmp_path / "run.tmt"), "--"]
    result = subprocess.run(
        [*command, sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=TIME_LIMIT
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "options", [(), ("-q",), ("--json",), ("--malloc", "off", "--no-numpy"), ("--follow-children",)]
)
def test_the_exit_code_is_passed_on(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert record(tmp_path / "run.tmt", "raise SystemExit(7)", *options).returncode == 7


def test_a_program_that_is_killed_ends_as_a_shell_says_it(tmp_path: Path) -> None:
    program = "import os, numpy; a = numpy.ones(2**20); os.kill(os.getpid(), 9)"
    result = record(tmp_path / "run.tmt", program, "--json")
    assert result.returncode == 128 + signal.SIGKILL
    facts = json.loads(result.stderr)
    assert (facts["exit_code"], facts["recorded"], facts["complete"]) == (128 + signal.SIGKILL, True, False)


@pytest.mark.parametrize("code", [0, 7])
def test_a_trace_that_cannot_be_written_is_told_and_in_the_exit_code(tmp_path: Path, code: int) -> None:
    program = f"""
        import resource, sys
        import numpy as np
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        for _ in range(20_000):
            np.empty(2**14)
        sys.exit({code})
    """
    result = record(tmp_path / "run.tmt", program)
    assert result.returncode == (code or 3), result.stderr
    assert result.stderr.count("The recording cannot be written") == 1 and "too large" in result.stderr
    with tm.trace.open(tmp_path / "run.tmt") as trace:
        assert trace.dropped > 1000 and trace.event_count > 0  # what was written before stays
        assert len(list(trace.events())) == trace.event_count


def test_a_size_that_is_not_one_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    result = record(tmp_path / "run.tmt", "print('ran')", "--malloc", "many")
    assert result.returncode == 2 and result.stdout == "" and "many" in result.stderr
