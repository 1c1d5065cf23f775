"""Owns: one table of the screen: a title, columns that depend on the width, rows that keep their place.

Must not know: what the rows are about.
"""

from __future__ import annotations

from typing import Literal

from rich.text import Text
from textual.events import Resize
from textual.widgets import DataTable

from tensormem.top.rows import Row

__all__ = ["Panel"]

WIDE = 110
"""From how many columns on a screen has room for everything."""


class Panel(DataTable[Text]):
    """A table with a title on its upper edge. It is not shown while it has no rows.

    >>> Panel("resources", ("resource", "used", "|", "space")).columns_at(200)
    ['resource', 'used', 'space']
    """

    def __init__(self, title: str, names: tuple[str, ...], *, cursor: bool = False) -> None:
        super().__init__(id=title, cursor_type="row", show_cursor=cursor)
        self._names = names
        self._rows: list[Row] = []
        self.border_title = title

    def columns_at(self, width: int) -> list[str]:
        """The columns that a screen of this width has room for."""
        mark = self._names.index("|")
        return [name for name in self._names if name != "|"] if width >= WIDE else list(self._names[:mark])

    def show(self, rows: list[Row], *, faint: bool = False) -> None:
        """Draw these rows; the cursor stays on the row that it was on."""
        self._rows = rows
        self.display = bool(rows)
        names = self.columns_at(self.app.size.width)
        key = self.key_under_cursor()
        self.clear(columns=True)
        for name in names:
            self.add_column(Text(name, justify=self._side(name)), key=name)
        for row in rows:
            style = "dim" if faint or row.faint else ""
            self.add_row(*self._cells(row, names, style), key=row.key)
        keys = [row.key for row in rows]
        if key in keys:
            self.move_cursor(row=keys.index(key), animate=False)

    def on_resize(self, event: Resize) -> None:
        """Another width may have room for other columns."""
        if self._rows and len(self.columns_at(self.app.size.width)) != len(self.columns):
            self.show(self._rows)

    def _cells(self, row: Row, names: list[str], style: str) -> list[Text]:
        every = [name for name in self._names if name != "|"]
        shown = [(name, cell) for name, cell in zip(every, row.cells, strict=True) if name in names]
        return [Text(cell, style=style or _style(name, cell), justify=self._side(name)) for name, cell in shown]

    def _side(self, name: str) -> Literal["left", "right"]:
        """Words stand on the left, numbers on the right."""
        return "left" if name in ("space", "notes", "worker", self._names[0]) else "right"

    def key_under_cursor(self) -> str | None:
        """The key of the row that the cursor is on."""
        if not self.row_count or not self.is_valid_row_index(self.cursor_row):
            return None
        return self.ordered_rows[self.cursor_row].key.value


def _style(name: str, cell: str) -> str:
    """Colours for what deserves a look."""
    if name == "frag" and cell.endswith("%"):
        share = int(cell.rstrip("%"))
        return "bold red" if share >= 75 else "yellow" if share >= 40 else "green"
    if "pressure critical" in cell or (name == "refused" and cell not in ("", "0")):
        return "bold red"
    return "yellow" if "pressure warn" in cell else ""
