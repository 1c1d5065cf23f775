"""Owns: tables of lines, threads and sizes, as `tensormem stats` shows them. Must not know: how they are found."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tensormem.cli.plain_text import shown
from tensormem.reports.traces import TraceSummary
from tensormem.reports.traces.call_sites import CallSite, source_line
from tensormem.units import format_size

__all__ = ["draw_sites", "size_table", "thread_table"]

_BAR = 24


def draw_sites(summary: TraceSummary, console: Console) -> None:
    """The two questions: who holds the memory at the peak, and who asks for it most."""
    if not summary.allocating:
        console.print(Text("No Python calls were recorded; `tensormem record --stacks` has the lines.", style="dim"))
        return
    console.print(_sites("held at the peak", summary.holding, at_peak=True))
    console.print(_sites("allocated in all", summary.allocating, at_peak=False))


def size_table(summary: TraceSummary) -> Table:
    """How many blocks there were of which size."""
    table = _table("blocks from", "count", "bytes")
    table.add_column("")
    most = max((one.nbytes for one in summary.sizes), default=1) or 1
    for one in summary.sizes:
        bar = "█" * max(round(_BAR * one.nbytes / most), 1)
        table.add_row(format_size(one.least), f"{one.blocks:,}", format_size(one.nbytes), Text(bar, style="dim"))
    return table


def thread_table(summary: TraceSummary) -> Table:
    """What each thread allocated."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("thread", overflow="fold", min_width=12)
    for title in ("allocated", "blocks", "at the peak"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, share in sorted(summary.by_thread.items(), key=lambda pair: -pair[1].nbytes):
        row = format_size(share.nbytes), f"{share.blocks:,}", format_size(share.peak_bytes)
        table.add_row(Text(shown(name)), *row)
    return table


def _sites(title: str, sites: tuple[CallSite, ...], *, at_peak: bool) -> Table:
    table = _table(title, "blocks")
    table.add_column("line", overflow="fold", min_width=12)
    for frame, share in sites:
        nbytes, blocks = (share.peak_bytes, share.peak_blocks) if at_peak else (share.nbytes, share.blocks)
        place = Text(shown(f"{Path(frame.file).name}:{frame.line} {frame.function}"))
        if source := source_line(frame):
            place.append(f"\n  {shown(source)}", style="dim")
        table.add_row(format_size(nbytes), f"{blocks:,}", place)
    return table


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table
