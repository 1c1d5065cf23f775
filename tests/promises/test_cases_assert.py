"""Promise: no test passes by doing nothing. The rule: a bare `return` of a test needs something on its own path
that could have failed: an `assert` or a `with pytest.raises` before it, or an `except` around it that names the errors
that are an answer too. A case that does not apply is left out by name (`testing.applicability`) or skipped aloud."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "src/tensormem/testing").rglob("*.py"), *(ROOT / "tests").rglob("test_*.py")])


def _could_fail(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assert):
        return True
    if isinstance(statement, ast.With):
        return any("raises" in ast.dump(item.context_expr) for item in statement.items) or _asserts(statement.body)
    return isinstance(statement, ast.For | ast.While) and _asserts(statement.body)


def _asserts(body: list[ast.stmt]) -> bool:
    return any(map(_could_fail, body))


def _silent_returns(body: list[ast.stmt], checked: bool) -> Iterator[int]:
    for statement in body:
        if isinstance(statement, ast.Return) and statement.value is None and not checked:
            yield statement.lineno
        for block in ("body", "orelse", "finalbody"):
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _silent_returns(getattr(statement, block, []), checked)
        for handler in getattr(statement, "handlers", []):
            yield from _silent_returns(handler.body, checked or handler.type is not None)
        checked = checked or _could_fail(statement)


def silent_returns(source: str) -> list[int]:
    """The lines of a module on which a test function ends without having asked anything."""
    return [
        line
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name.startswith("test_")
        for line in _silent_returns(function.body, checked=False)
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_test_passes_by_returning(file: Path) -> None:
    assert silent_returns(file.read_text()) == []


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("if x: return\n assert y", [2]),
        ("for a in b:\n  if a: return", [3]),
        ("assert x\n return", []),
        ("with pytest.raises(KeyError):\n  f()\n return", []),
        ("try:\n  f()\n except KeyError:\n  return", []),
        ("try:\n  f()\n except:\n  return", [5]),
        ("def inner():\n  return\n assert inner", []),
    ],
)
def test_the_rule_finds_what_it_is_for(body: str, lines: list[int]) -> None:
    assert silent_returns(f"def test_it(x):\n {body}") == lines
