"""The commands that the guides tell people to type, typed after the Python of the page has run."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from promises import docs_blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("how-to/would-it-fit.md", "how-to/plan-a-static-arena.md")
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def commands_of(page: Path) -> list[list[str]]:
    fences = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for fence in fences for line in fence.splitlines() if line.startswith("tensormem ")]


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_the_guide_works_where_it_stands(name: str, tmp_path: Path) -> None:
    page = DOCS / name
    subprocess.run([sys.executable, docs_blocks.__file__, page], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "plan.json").unlink(missing_ok=True)  # the guide makes it by both ways
    commands = commands_of(page)
    assert commands
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
        )
        # 1 is an answer too: it does not fit.
        assert done.returncode in (0, 1), f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
        assert "Next: " in done.stdout
