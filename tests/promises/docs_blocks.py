"""Finds and runs the Python of one Markdown page: `python docs_blocks.py PAGE`.

Owns: what a runnable block is. A fence ```python runs after the page's earlier ones, in the same namespace. The line
`<!-- no-run: why -->` above a fence keeps it from running, and has to say why. Fences that show Python in any other
way are refused, so that no example can hide from the tests. Errors point at the line in the page.
"""

import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^ *(?P<ticks>`{3,}|~{3,}) *(?P<info>.*)$")
NO_RUN = re.compile(r"^ *<!-- *no-run:(?P<why>.*)-->\s*$")
LOOKS_LIKE_PYTHON = re.compile(
    r"^(\{(code|code-block|code-cell|sourcecode)\} *)?\{?(python3?|py|pycon|ipython3?|doctest|testcode)\b(?!:)"
)


class BadPage(Exception):
    """A page that the runner cannot vouch for."""


@dataclass(frozen=True)
class Block:
    line: int  # of its first line of code, from 1
    code: str
    no_run: str | None = None


def blocks(page: Path) -> list[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    found = []
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if not opening:
            number += 1
            continue
        end = _end_of_fence(page, lines, number, opening["ticks"])
        if LOOKS_LIKE_PYTHON.match(opening["info"]):
            found.append(_python_block(page, lines, number, end, opening["info"].strip()))
        number = end + 1
    return found


def _end_of_fence(page: Path, lines: list[str], start: int, ticks: str) -> int:
    for number in range(start + 1, len(lines)):
        closing = FENCE.match(lines[number])
        if closing and closing["ticks"].startswith(ticks) and not closing["info"]:
            return number
    raise BadPage(f"{page.name}:{start + 1}: this fence is never closed")


def _python_block(page: Path, lines: list[str], start: int, end: int, info: str) -> Block:
    if info != "python":
        raise BadPage(f"{page.name}:{start + 1}: write ```python instead of ```{info}, so that the tests run it")
    comment = NO_RUN.match(lines[start - 1]) if start > 0 else None
    if comment and not comment["why"].strip():
        raise BadPage(f"{page.name}:{start}: no-run needs a reason")
    code = textwrap.dedent("\n".join(lines[start + 1 : end]))
    return Block(start + 2, code, comment["why"].strip() if comment else None)


def run(page: Path) -> int:
    """Runs every runnable block of the page and says how many there were."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    runnable = [block for block in blocks(page) if block.no_run is None]
    for block in runnable:
        padding = "\n" * (block.line - 1)  # so that line numbers are those of the page
        exec(compile(padding + block.code, str(page), "exec"), namespace)
    return len(runnable)


if __name__ == "__main__":
    print(f"{run(Path(sys.argv[1]))} blocks ran")
