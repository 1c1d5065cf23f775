"""Owns: a real browser for tests of pages: Chromium without a window, and what a page did in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_ALONE = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-sync",
    "--no-first-run",
)
_COLORS = """([id, left, top, width, height]) => {
  const canvas = document.getElementById(id);
  const box = [left, top, width || canvas.clientWidth, height || canvas.clientHeight];
  const [x, y, columns, rows] = box.map((side) => Math.round(side * devicePixelRatio));
  const copy = new OffscreenCanvas(columns, rows).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, -x, -y);
  const { data } = copy.getImageData(0, 0, columns, rows);
  const counts = new Map();
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] < 128) continue;
    const key = "#" + [0, 1, 2].map((part) => data[at + part].toString(16).padStart(2, "0")).join("");
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return Object.fromEntries(counts);
}"""


class OpenedPage:
    """A page in the browser, what it said on the console, and what it asked the network for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.errors.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))

    def open(self, url: str) -> OpenedPage:
        """Goes there, and waits until the page has drawn its data."""
        self.page.goto(url)
        self.page.evaluate("tensormem.ready")
        return self

    def ask(self, expression: str, argument: Any = None) -> Any:
        """What `window.tensormem` answers."""
        return self.page.evaluate(f"(argument) => tensormem.{expression}", argument)

    def settle(self) -> None:
        """Waits until everything that was asked to be drawn is drawn."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def colors(self, canvas: str, *box: float) -> dict[str, int]:
        """How many pixels of each colour a canvas has, in all or in a box (left, top, width, height)."""
        self.settle()
        left, top, width, height = box or (0, 0, 0, 0)
        found: dict[str, int] = self.page.evaluate(_COLORS, [canvas, left, top, width, height])
        return found

    def style(self, name: str) -> str:
        """A colour of the theme."""
        script = "(name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
        return str(self.page.evaluate(script, f"--{name}"))


class Chromium:
    """The browser of a module of tests."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    def open(self, url: str, *, scheme: Literal["light", "dark"] = "light", width: int = 1300) -> OpenedPage:
        """A fresh window, with nothing of the others in it."""
        context = self._browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme)
        return OpenedPage(context.new_page()).open(url)

    def close_pages(self) -> None:
        """Closes every window."""
        for context in self._browser.contexts:
            context.close()


@contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser; a test says loudly when this machine has none."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("could not run: Chromium is not on this machine (Debian's package chromium)")
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*_ALONE, *sandbox])
        try:
            yield Chromium(browser)
        finally:
            browser.close()
