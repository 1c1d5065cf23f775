"""Owns: live screens without a terminal: what stands on one, and the screen of a real cluster driven by a test."""

import asyncio
import html
import re
import time
from collections.abc import Awaitable, Callable

from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static

from support.waiting import TIME_LIMIT
from tensormem.distributed import ClusterStats
from tensormem.top.screen import ClusterApp


def text_of(app: App[None]) -> str:
    """The screen as lines of text, taken out of its picture."""
    found: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(
        r'<text class="\S*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', app.export_screenshot()
    ):
        found.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    lines = []
    for y in sorted(found):
        line = ""
        for x, text in sorted(found[y]):
            line = line.ljust(round(x / 12.2)) + text
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def head_of(app: App[None]) -> str:
    """The lines above the tables."""
    return str(app.query_one("#head", Static).render())


def drive_cluster(
    ask: Callable[[], ClusterStats], steps: Callable[[ClusterApp, Pilot[None]], Awaitable[None]], width: int = 160
) -> ClusterApp:
    """The screen of a cluster, open for these steps. It looks by itself as fast as the cluster answers."""
    app = ClusterApp(ask, interval=0.05)

    async def run() -> None:
        async with app.run_test(size=(width, 30)) as pilot:
            await steps(app, pilot)

    asyncio.run(run())
    return app


async def until(pilot: Pilot[None], fact: Callable[[], bool], what: str) -> None:
    """Returns when the fact is true of the screen; fails with `what` and the screen if it never becomes so."""
    end = time.monotonic() + TIME_LIMIT
    while not fact():
        assert time.monotonic() < end, f"{what}\n{text_of(pilot.app)}"
        await pilot.pause(0.02)
