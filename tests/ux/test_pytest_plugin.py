"""The plugin for pytest, as its users meet it: runs of pytest in processes of their own."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def run(folder: Path, source: str, *arguments: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text("import pytest\nimport tensormem as tm\n\n" + textwrap.dedent(source))
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def test_a_test_over_its_limit_fails_and_says_by_how_much(tmp_path: Path) -> None:
    code, said = run(
        tmp_path,
        """
        @pytest.mark.limit_memory("1MiB")
        def test_small():
            for _ in range(10):
                tm.zeros(1000, "uint8")

        @pytest.mark.limit_memory("1MiB")
        def test_large():
            kept = [tm.empty(524288, "uint8") for _ in range(3)]
        """,
    )
    assert code == 1 and "1 failed, 1 passed" in said
    assert "the test had 1.5 MiB of main memory at once, in 3 allocations; its limit is 1 MiB" in said


def test_memory_of_other_threads_counts(tmp_path: Path) -> None:
    code, said = run(
        tmp_path,
        """
        import threading

        @pytest.mark.limit_memory("1KiB")
        def test_threads():
            thread = threading.Thread(target=lambda: tm.empty(4096, "uint8"))
            thread.start()
            thread.join()
        """,
    )
    assert code == 1 and "4 KiB of main memory" in said


def test_a_leak_is_named_by_its_stack_and_a_cycle_is_none(tmp_path: Path) -> None:
    code, said = run(
        tmp_path,
        """
        kept = []

        def cause():
            kept.append(tm.empty(5000, "uint8"))

        @pytest.mark.limit_leaks("1KiB")
        def test_leak():
            cause()

        @pytest.mark.limit_leaks(0)
        def test_cycle():
            cycle = [tm.empty(5000, "uint8")]
            cycle.append(cycle)

        @pytest.mark.limit_leaks("8KiB")
        def test_within():
            cause()
        """,
    )
    assert code == 1 and "1 failed, 2 passed" in said
    assert "bytes of main memory behind; its limit is 1 KiB" in said or "KiB of main memory behind" in said
    assert "in cause" in said


def test_the_resource_that_was_there_is_there_again(tmp_path: Path) -> None:
    code, said = run(
        tmp_path,
        """
        before = tm.mr.get_per_device_resource(0)

        @pytest.mark.limit_memory("1MiB")
        def test_inside():
            assert tm.mr.get_per_device_resource(0) is not before

        def test_after():
            assert tm.mr.get_per_device_resource(0) is before
        """,
    )
    assert (code, "2 passed" in said) == (0, True)


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ('limit_memory("12 potatoes")', "potatoes"),
        ('limit_memory("1MiB", space="attic")', "attic"),
        ("limit_leaks()", "nbytes"),
    ],
)
def test_a_wrong_mark_says_what_is_wrong(tmp_path: Path, mark: str, words: str) -> None:
    code, said = run(tmp_path, f"@pytest.mark.{mark}\ndef test_it(): pass\n")
    assert code != 0 and words in said and "test_it" in said


def test_a_space_that_is_not_there_fails_the_test_with_the_reason(tmp_path: Path) -> None:
    code, said = run(tmp_path, '@pytest.mark.limit_memory("1MiB", space="gpu:7")\ndef test_it(): pass\n')
    assert code == 1 and "gpu:7" in said


def test_the_summary_and_the_file_list_every_test(tmp_path: Path) -> None:
    code, said = run(
        tmp_path,
        """
        def test_one():
            tm.empty(2048, "uint8")

        def test_two():
            tm.empty(100, "uint8")
        """,
        "--memory",
        "--memory-json=memory.json",
    )
    assert code == 0 and "memory" in said and said.index("test_one") < said.index("test_two")
    written = json.loads((tmp_path / "memory.json").read_text())
    assert {row["test"]: row["peak_bytes"] for row in written["tests"]} == {
        "test_it.py::test_one": 2048,
        "test_it.py::test_two": 100,
    }


def test_without_marks_and_options_nothing_is_loaded(tmp_path: Path) -> None:
    code, said = run(tmp_path, "import sys\ndef test_it(): assert 'tensormem.mr' not in sys.modules\n")
    assert code == 0, said
