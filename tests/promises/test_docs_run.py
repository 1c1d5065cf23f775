"""Promise: every Python block of the documentation runs, or says why not."""

import subprocess
import sys
from pathlib import Path

import pytest

from promises import docs_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", docs_blocks.__file__, page],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


def page_of(tmp_path: Path, text: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


def test_blocks_share_one_namespace_in_the_order_of_the_page(tmp_path: Path) -> None:
    page = page_of(tmp_path, "```python\nx = 1\n```\n\n- item\n\n  ```python\n  assert x == 1\n  ```\n")
    assert docs_blocks.run(page) == 2


def test_an_error_names_the_line_of_the_page(tmp_path: Path) -> None:
    page = page_of(tmp_path, "# Title\n\n```python\nok = 1\nraise ValueError(ok)\n```\n")
    with pytest.raises(ValueError, match="1") as caught:
        docs_blocks.run(page)
    assert caught.traceback[-1].lineno == 4  # counted from 0


def test_a_block_with_a_reason_does_not_run(tmp_path: Path) -> None:
    page = page_of(tmp_path, "<!-- no-run: needs a GPU -->\n```python\nraise SystemExit\n```\n")
    assert docs_blocks.run(page) == 0
    assert docs_blocks.blocks(page)[0].no_run == "needs a GPU"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<!-- no-run: -->\n```python\n1 / 0\n```\n", "page.md:1: no-run needs a reason"),
        ("```pycon\n>>> 1 / 0\n```\n", "page.md:1: write ```python"),
        ("```{code-block} python\n1 / 0\n```\n", "page.md:1: write ```python"),
        ("text\n\n```python\n1 / 0\n", "page.md:3: this fence is never closed"),
    ],
)
def test_a_page_that_hides_its_python_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(docs_blocks.BadPage, match=complaint):
        docs_blocks.run(page_of(tmp_path, text))
