"""Owns: the screen of a cluster: its workers by node, its keys, and when it looks again.

Asking runs in a thread, so that a slow node does not freeze the screen. Workers come and go with the answers. When the
cluster does not answer, the last figures stay, a line says so, and it is asked again. Must not know: engines.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.widgets import Footer, Static

from tensormem.distributed import ClusterStats
from tensormem.errors import DistributedError
from tensormem.top.rows import Row
from tensormem.top.screen.panel import Panel
from tensormem.units import format_size

__all__ = ["ClusterApp"]

COLUMNS = ("node", "worker", "used", "peak", "budget", "|", "limit", "fragmentation", "spilled", "refused")


class ClusterApp(App[None]):
    """The live screen of a cluster; `ask` gives its table of this moment.

    >>> from tensormem.distributed import ClusterStats
    >>> ClusterApp(lambda: ClusterStats("dask", [])).title
    'tensormem top'
    """

    TITLE = "tensormem top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; padding: 0 1; }
    Panel { border-top: solid $primary; border-title-color: $accent; border-title-style: bold; padding: 0;
            height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; background: $background; }
    Panel:focus { background-tint: transparent; }
    Panel > .datatable--header { text-style: none; color: $text-muted; background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("p", "pause", "Pause"),
        Binding("t", "theme", "Theme"),
    ]

    def __init__(self, ask: Callable[[], ClusterStats], interval: float = 1.0) -> None:
        super().__init__()
        self.ask = ask
        self.paused = False
        self.lost = ""
        self.stats: ClusterStats | None = None
        self._interval = interval
        self._asking = asyncio.Lock()

    def compose(self) -> ComposeResult:
        """The parts, from top to bottom."""
        yield Static(id="head")
        yield Panel("workers", COLUMNS, cursor=True)
        yield Footer()

    def on_mount(self) -> None:
        """Look at once, then at every interval."""
        self.query_one("#workers").focus()
        self.draw()
        self._look_again()
        self.set_interval(self._interval, self._look_again)

    async def look(self) -> None:
        """Ask, and draw what comes."""
        async with self._asking:
            try:
                self.stats, self.lost = await asyncio.to_thread(self.ask), ""
            except DistributedError as error:
                self.lost = f"{time.strftime('%H:%M:%S')}: {error}; these are the last figures"
        with suppress(NoMatches):  # the screen was left meanwhile
            self.draw()

    def draw(self) -> None:
        """Draw the last answer again."""
        self.query_one("#head", Static).update(self._head())
        if self.stats is not None:
            self.query_one("#workers", Panel).show(_rows(self.stats), faint=bool(self.lost))

    def action_pause(self) -> None:
        """Stand still, or go on."""
        self.paused = not self.paused
        self.draw()

    def action_theme(self) -> None:
        """Dark or light."""
        self.theme = "textual-light" if self.theme == "textual-dark" else "textual-dark"

    def _look_again(self) -> None:
        if not self.paused and not self._asking.locked():
            # Keys are heard meanwhile. The type that textual declares is narrower than what it takes.
            self.run_worker(self.look)  # type: ignore[arg-type]

    def _head(self) -> Text:
        if self.lost:
            return Text(self.lost, style="bold red")
        text = Text("waiting for figures" if self.stats is None else _in_short(self.stats), style="bold")
        return text.append("  paused: p goes on" if self.paused else "", style="bold yellow")


def _in_short(stats: ClusterStats) -> str:
    nodes = stats.nodes()
    if not nodes and not stats.silent:
        return f"{stats.engine}: no worker was set up"
    used = format_size(sum(node.used for node in nodes))
    silent = f", {len(stats.silent)} without an answer" if stats.silent else ""
    return f"{stats.engine}: {_count(len(stats.rows), 'worker')} on {_count(len(nodes), 'node')}, {used} used{silent}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _rows(stats: ClusterStats) -> list[Row]:
    """A row for each line of the table; those of a whole node are faint."""
    _, *lines = stats.table()
    return [Row(f"{line[0]} {line[1]}", line, line[1].startswith("all "), False) for line in lines]
