"""What tests of pages share: a browser for a module, and the page of a small server in it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

import tensormem as tm
from support.browser import Chromium, OpenedPage, chromium
from support.pages import Show, report, serve_requests
from tensormem.trace import Trace


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def server_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages") / "serving.tmt"
    serve_requests(made)
    return made


@pytest.fixture(scope="module")
def recording(server_trace: Path) -> Iterator[Trace]:
    with tm.trace.open(server_trace) as trace:
        yield trace


@pytest.fixture
def show(browser: Chromium, tmp_path: Path) -> Iterator[Show]:
    def opened(trace: Path, *options: str, scheme: Literal["light", "dark"] = "light") -> OpenedPage:
        output = report(trace, tmp_path / "page.html", *options)
        return browser.open(output.as_uri(), scheme=scheme)

    yield opened
    browser.close_pages()


@pytest.fixture
def serving(show: Show, server_trace: Path) -> OpenedPage:
    return show(server_trace)
