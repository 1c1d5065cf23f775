"""Promise: every resource has a page with an example of it that runs, and the list of resources leads there."""

import re
from pathlib import Path

import pytest

from promises import docs_blocks
from tensormem import mr

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reference" / "resources"
RESOURCES = [
    name
    for name in mr.__all__
    if name.endswith(("MemoryResource", "ResourceAdaptor")) and name != mr.DeviceMemoryResource.__name__
]


def page_of(name: str) -> Path:
    words = re.findall("[A-Z][a-z]*", re.sub("(Memory)?Resource(Adaptor)?$", "", name))
    return PAGES / f"{'-'.join(words).lower()}.md"


@pytest.mark.parametrize("name", RESOURCES)
def test_a_resource_has_a_page_with_an_example_that_runs(name: str) -> None:
    page = page_of(name)
    examples = [block.code for block in docs_blocks.blocks(page) if block.no_run is None]
    assert page.read_text(encoding="utf-8").startswith(f"# {name}\n")
    assert any(f"{name}(" in example for example in examples), f"no example on {page.name} makes one"


@pytest.mark.parametrize("name", RESOURCES)
def test_the_list_of_resources_leads_to_the_page(name: str) -> None:
    page, text = page_of(name), (PAGES / "index.md").read_text(encoding="utf-8")
    assert f"({page.name})" in text and f"\n{page.stem}\n" in text.partition("{toctree}")[2]


def test_resources_are_found_at_all() -> None:
    assert len(RESOURCES) > 15
