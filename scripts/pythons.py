"""Runs the unit tests on every Python that tensormem runs on: `pythons.py`, or `pythons.py 3.14t` for some of them.

The Python of `make test` is left out unless it is named. Without the GIL, the tests of threads run too, and a module
that would switch it on again is an error. Large libraries are not installed here; the files that need them are named.
Must not know: where interpreters come from, and how environments are made.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import interpreters

ROOT = Path(__file__).resolve().parent.parent
# Of gigabytes, or without wheels for every Python.
LARGE = ("torch", "jax", "numba", "pyarrow", "cuda", "hip", "tvm_ffi")


def prepare(name: str) -> Path:
    """The python of an environment with tensormem for this Python."""
    folder = f".venv-{name}"
    command = (interpreters.find(name), ROOT / "scripts" / "environment.py", "--environment", folder, "pythons")
    if subprocess.run(command).returncode != 0:
        sys.exit(1)
    return ROOT / folder / "bin" / "python"


def left_out(folders: list[str]) -> list[str]:
    """Files whose tests need a library that only the environment of `make test` has."""
    needs = re.compile(rf"^(import|from) ({'|'.join(LARGE)})\b", re.MULTILINE)
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("test_*.py"))]
    return [str(file.relative_to(ROOT)) for file in files if needs.search(file.read_text(encoding="utf-8"))]


def run_tests(name: str, python: Path) -> bool:
    folders = ["tests/unit", *(["tests/threads"] if name.endswith("t") else [])]
    # What is not installed here is tested on the Python of `make test`: a skip is not a failure.
    variables = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "CI": ""}
    command = [str(python), "-m", "pytest", "-q", "-n", "auto", "--dist", "loadfile", *folders]
    print(f"\n{name}: {' '.join(folders)}, without {', '.join(LARGE)}", flush=True)
    for file in left_out(folders):
        print(f"  not run here: {file}", flush=True)
        command.append(f"--ignore={file}")
    return subprocess.run(command, cwd=ROOT, env=variables).returncode == 0


def main() -> None:
    running = "{}.{}".format(*sys.version_info)
    failed = []
    for name in sys.argv[1:] or [name for name in interpreters.VERSIONS if name != running]:
        try:
            python = prepare(name)
        except interpreters.NoInterpreterError as missing:
            sys.exit(str(missing))
        if not run_tests(name, python):
            failed.append(name)
    if failed:
        sys.exit(f"The tests failed on Python {', '.join(failed)}; see above.")


if __name__ == "__main__":
    main()
