"""Owns: the screen: what is on it, its keys, and when it looks again.

The figures come from a `Source`; asking runs in a thread, so that a slow process does not freeze the screen. When the
watched process ends, the last figures stay, and a line says so. Must not know: sockets.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import DataTable, Footer, Sparkline, Static

from tensormem.errors import CannotWatch
from tensormem.top.rows import (
    POOL_COLUMNS,
    RESOURCE_COLUMNS,
    TENANT_COLUMNS,
    Sort,
    headline,
    pool_rows,
    resource_rows,
    spaces_in_short,
    tenant_rows,
)
from tensormem.top.screen.panel import WIDE, Panel

__all__ = ["Source", "TopApp"]


class Source(Protocol):
    """Where the figures come from: a `Watch`, for example."""

    def ask(self) -> dict[str, Any]:
        """The answer of this moment; `CannotWatch` when there will be none any more."""


class TopApp(App[None]):
    """The live screen.

    >>> from tensormem.top.screen import TopApp
    >>> class Nothing:
    ...     def ask(self):
    ...         raise NotImplementedError
    >>> TopApp(Nothing()).title
    'tensormem top'
    """

    TITLE = "tensormem top"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - textual declares it so
        (0, "-narrow"),
        (WIDE, "-wide"),
    ]
    CSS = """
    #head { height: auto; padding: 0 1; }
    #curve { height: 1; margin: 0 1; }
    #curve > .sparkline--max-color { color: $primary-lighten-2; }
    #curve > .sparkline--min-color { color: $primary-darken-2; }
    Panel { border-top: solid $primary; border-title-color: $accent; border-title-style: bold; padding: 0;
            overflow-x: hidden; scrollbar-size-vertical: 1; background: $background; }
    Panel:focus { background-tint: transparent; }
    Panel > .datatable--header { text-style: none; color: $text-muted; background: $background; }
    #resources { height: 1fr; min-height: 5; }
    #below { height: auto; max-height: 50%; layout: vertical; }
    #below Panel { height: auto; max-height: 5; }
    .-wide #below { layout: horizontal; }
    .-wide #below Panel { width: 1fr; max-height: 16; }
    .-wide #curve { height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("s", "sort", "Sort"),
        Binding("p", "pause", "Pause"),
        Binding("enter", "fold", "Fold", priority=True),
        Binding("e", "fold_all", "Expand"),
        Binding("t", "theme", "Theme"),
    ]

    def __init__(self, source: Source, interval: float = 1.0) -> None:
        super().__init__()
        self.source = source
        self.sort = Sort.TREE
        self.paused = False
        self.ended = ""
        self.answer: dict[str, Any] | None = None
        self._interval = interval
        self._folded: set[int] = set()
        self._asking = asyncio.Lock()

    def compose(self) -> ComposeResult:
        """The parts, from top to bottom."""
        yield Static(id="head")
        yield Sparkline([], id="curve", summary_function=max)
        yield Panel("resources", RESOURCE_COLUMNS, cursor=True)
        with Container(id="below"):
            yield Panel("pools", POOL_COLUMNS)
            yield Panel("tenants", TENANT_COLUMNS)
        yield Footer()

    async def on_mount(self) -> None:
        """Look at once, then at every interval."""
        self.query_one("#resources").focus()
        await self.look()
        self.set_interval(self._interval, self._look_again)

    async def look(self) -> None:
        """Ask, and draw what comes."""
        async with self._asking:
            try:
                self.answer = await asyncio.to_thread(self.source.ask)
            except CannotWatch as error:
                self.ended = f"{time.strftime('%H:%M:%S')}: {error.reason}; these are its last figures (q to leave)"
        self.draw()

    def draw(self) -> None:
        """Draw the last answer again, as the keys say."""
        self._draw_head()
        if self.answer is None:
            return
        faint = bool(self.ended)
        self.query_one("#curve", Sparkline).data = [moment["used_bytes"] for moment in self.answer["history"]]
        resources = self.query_one("#resources", Panel)
        resources.border_title = "resources" if self.sort is Sort.TREE else f"resources by {self.sort}"
        resources.show(resource_rows(self.answer, self.sort, self._folded), faint=faint)
        self.query_one("#pools", Panel).show(pool_rows(self.answer), faint=faint)
        self.query_one("#tenants", Panel).show(tenant_rows(self.answer), faint=faint)

    # --- Keys ---

    def action_sort(self) -> None:
        """The next order."""
        self.sort = self.sort.next
        self.draw()

    def action_pause(self) -> None:
        """Stand still, or go on."""
        self.paused = not self.paused
        self._draw_head()

    def action_fold(self) -> None:
        """Fold what stands on the resource under the cursor, or unfold it."""
        key = self.query_one("#resources", Panel).key_under_cursor()
        if key is not None and self.sort is Sort.TREE:
            self._folded ^= {int(key[1:])}
            self.draw()

    def action_fold_all(self) -> None:
        """Unfold everything; if nothing is folded, fold everything."""
        everything = {each["id"] for each in self.answer["resources"]} if self.answer else set()
        self._folded = set() if self._folded else everything
        self.draw()

    def action_theme(self) -> None:
        """Dark or light."""
        self.theme = "textual-light" if self.theme == "textual-dark" else "textual-dark"

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """A click on a row folds like the key."""
        if event.data_table.id == "resources":
            self.action_fold()

    async def _look_again(self) -> None:
        if not self.paused and not self.ended:
            await self.look()

    def _draw_head(self) -> None:
        lines = headline(self.answer) if self.answer else ["waiting for figures"]
        text = Text(no_wrap=True, overflow="ellipsis")
        if self.ended:
            text.append(self.ended, style="bold red")
        else:
            text.append(lines[0], style="bold").append(
                "  paused: p goes on" if self.paused else "", style="bold yellow"
            )
        more = lines[1:]
        if self.answer and self.size.width < WIDE:
            more = [*lines[1:3], spaces_in_short(self.answer)]
        self.query_one("#head", Static).update(text.append("".join(f"\n{line}" for line in more)))
