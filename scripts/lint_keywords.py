"""Owns: the check that a misspelt keyword of any public function or class fails in mypy and in pyright.

A program calls each with a keyword that it does not have; both checkers have to say so in every line.
"""

import enum
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.public_names import CALLABLES, is_offered  # noqa: E402

WRONG = "spce_of_no_function"


def program() -> tuple[str, list[str]]:
    """The program, and what is called in each of its last lines."""
    called = [full for full in CALLABLES if is_offered(full) and _has_keywords(full)]
    modules = sorted({full.partition(":")[0] for full in called} | {"tensormem"})
    head = "".join(f"import {name}\n" for name in modules)
    return head + "".join(f"{full.replace(':', '.')}({_first(full)}{WRONG}=None)\n" for full in called), called


def _first(full: str) -> str:
    parameters = inspect.signature(CALLABLES[full]).parameters.values()
    return "".join("None, " for each in parameters if each.kind is each.POSITIONAL_ONLY)


def _has_keywords(full: str) -> bool:
    if isinstance(CALLABLES[full], enum.EnumType):  # whose values nobody finds by keyword
        return False
    parameters = inspect.signature(CALLABLES[full]).parameters.values()
    passes_on = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return not passes_on and any(each.kind is not each.POSITIONAL_ONLY for each in parameters)


def lines_of_mypy(file: Path) -> set[int]:
    """The lines in which mypy finds the keyword unknown."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    return {int(line) for line in re.findall(rf'{file.name}:(\d+): error: .*keyword argument "{WRONG}"', said)}


def lines_of_pyright(file: Path) -> set[int]:
    """The lines in which pyright finds the keyword unknown."""
    settings = {"typeCheckingMode": "basic", "extraPaths": [str(ROOT / "src")], "include": [file.name]}
    (file.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(file.parent)]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    found = said["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if WRONG in each["message"]}


def main() -> int:
    """1, and a list, if a checker lets a misspelt keyword pass."""
    text, called = program()
    first = text.count("\n") - len(called) + 1
    failed = False
    checkers = {"mypy": lines_of_mypy}
    if importlib.util.find_spec("basedpyright") is not None:
        checkers["pyright"] = lines_of_pyright
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "misspelt.py")
        file.write_text(text)
        for name, lines in checkers.items():
            found = lines(file)
            passed = [full for number, full in enumerate(called, first) if number not in found]
            failed = failed or bool(passed)
            print(f"{name}: {len(called) - len(passed)} of {len(called)} misspelt keywords are found")
            print("".join(f"  {full} takes anything\n" for full in passed), end="")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
