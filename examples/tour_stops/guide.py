"""Owns: what the tour says and draws, and the account of what held true.

Must not know: any stop.
"""

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

NEXT = "tensormem doctor"


class Guide:
    """Shows things on a console, and keeps count of the expectations that held and the sentences that did not."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = Console(highlight=False) if console is None else console
        self.held = 0
        self.broken: list[str] = []

    def open(self, title: str) -> None:
        self.console.print(Text(title, style="bold"))

    def arrive(self, number: int, title: str) -> None:
        self.console.print()
        self.console.print(Rule(Text(f"{number}. {title}", style="bold cyan"), align="left"))

    def say(self, text: str) -> None:
        self.console.print(Text(text))

    def draw(self, what: RenderableType) -> None:
        self.console.print(what)

    def table(self, *columns: str, rows: Sequence[Sequence[str]], text_columns: int = 1) -> None:
        """A table whose first columns are text and whose others are figures."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for place, column in enumerate(columns):
            table.add_column(column, justify="left" if place < text_columns else "right")
        for row in rows:
            table.add_row(*map(Text, row))
        self.console.print(table)

    def progress(self) -> Progress:
        """A bar that disappears when it is done, and is not drawn where it could not."""
        hidden = not self.console.is_terminal
        bar = (TextColumn("{task.description}"), BarColumn())
        return Progress(*bar, console=self.console, transient=True, disable=hidden)

    def expect(self, sentence: str, holds: bool) -> None:
        """Notes whether the sentence is true, and says so."""
        if holds:
            self.held += 1
        else:
            self.broken.append(sentence)
        mark = Text("  ok       ", style="green") if holds else Text("  NOT TRUE ", style="bold red")
        self.console.print(mark + Text(sentence))

    def close(self, seconds: float) -> int:
        """The closing lines, and the exit code of the tour."""
        self.console.print()
        for sentence in self.broken:
            self.console.print(Text(f"NOT TRUE: {sentence}", style="bold red"))
        verdict = f"{self.held} of {self.held + len(self.broken)} expectations held, in {seconds:.1f} s."
        self.console.print(Text(verdict, style="bold red" if self.broken else "bold green"))
        self.console.print(Text(f"Next: {NEXT}"))
        return 1 if self.broken else 0
