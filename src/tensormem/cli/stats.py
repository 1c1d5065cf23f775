"""Owns: `tensormem stats`: a trace in short."""

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.files import check_free, reading, write_json
from tensormem.cli.options import output_options, screen_options, trace_argument
from tensormem.cli.plain_text import shown
from tensormem.cli.screen import screen
from tensormem.cli.site_tables import draw_sites, size_table, thread_table
from tensormem.reports.traces import TraceSummary, summarize
from tensormem.trace import BlockLife, Peak
from tensormem.units import format_size

_NAME_COLUMNS = 16  # so many a name has, however narrow the terminal is
_NARROW_COLUMNS = 72  # below it, only the most important numbers stand beside a name


@click.command()
@trace_argument()
@click.option("-n", "--most", default=10, show_default=True, type=click.IntRange(1), help="How many blocks to list.")
@output_options
@screen_options
@click.pass_context
def stats(
    context: click.Context,
    *,
    trace: str,
    most: int,
    output: str | None,
    force: bool,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Peaks, the lines that hold most at the peak and that allocate most, sizes, and what was never given back.

    TRACE is a recording (.tmt), a PyTorch memory snapshot, an RMM log or a CSV of lifetimes; - is standard input. With
    -o the summary is written there as JSON. Ends with 0, or with 1 if something of tensormem's was never given back, or
    if something failed; what other libraries have at the end they still use.
    """
    check_free(output, force=force)
    with reading(trace) as opened:
        summary = summarize(opened, most=most)
    if as_json or output is not None:
        write_json(summary.as_json(), output, force=force)
    else:
        draw(summary, screen(no_color=no_color), quiet=quiet, verbose=verbose)
    context.exit(ExitCode.FINDING if summary.outstanding_blocks or summary.failures else ExitCode.FINE)


def draw(summary: TraceSummary, console: Console, *, quiet: bool = False, verbose: bool = False) -> None:
    """Tables of peaks and of blocks, a line of verdict, and the next command to type."""
    console.print(_headline(summary), soft_wrap=True)
    narrow = console.width < _NARROW_COLUMNS
    console.print(_peaks("space", summary.spaces, verbose=verbose, narrow=narrow))
    if not quiet:
        console.print(_peaks("tag", summary.tags, verbose=verbose, narrow=narrow))
        console.print(_peaks("resource", summary.resources, verbose=verbose, narrow=narrow))
        draw_sites(summary, console)
        if summary.outstanding:
            console.print(_blocks("never given back", summary.outstanding, verbose=verbose))
        console.print(_blocks("largest", summary.largest, verbose=verbose))
        console.print(size_table(summary))
        if len(summary.by_thread) > 1:
            console.print(thread_table(summary))
    console.print(_verdict(summary), soft_wrap=True)
    if not quiet:
        console.print(f"Next: tensormem view {shown(summary.source)}", soft_wrap=True, markup=False)


def _headline(summary: TraceSummary) -> Text:
    seconds = summary.duration_ns / 1e9
    text = Text(f"{shown(summary.source)}: {summary.events:,} events in {seconds:.3f} s, {summary.threads} threads")
    if summary.dropped:
        text.append(f", {summary.dropped:,} lost", style="bold yellow")
    if not summary.complete:
        text.append(", the process was killed", style="bold yellow")
    return text


def _verdict(summary: TraceSummary) -> Text:
    text = Text(f"Peak {format_size(summary.peak_bytes)}", style="bold")
    text.append(f"; {summary.outstanding_blocks:,} blocks ({format_size(summary.outstanding_bytes)}) never given back")
    if summary.in_use_blocks:
        text.append(f"; {summary.in_use_blocks:,} ({format_size(summary.in_use_bytes)}) still in use by libraries")
    return text.append(f"; {summary.failures:,} failures." if summary.failures else ".")


def _size(nbytes: int, *, verbose: bool) -> str:
    return f"{format_size(nbytes)} ({nbytes})" if verbose else format_size(nbytes)


def _peaks(what: str, peaks: dict[str, Peak], *, verbose: bool, narrow: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(what, overflow="fold", min_width=_NAME_COLUMNS)
    for title in ("peak",) if narrow else ("peak", "blocks", "at", "left at the end"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, peak in sorted(peaks.items(), key=lambda item: -item[1].nbytes):
        if name:
            rest = f"{peak.blocks:,}", f"{peak.time_ns / 1e9:.3f} s", _size(peak.final_bytes, verbose=verbose)
            table.add_row(Text(shown(name)), _size(peak.nbytes, verbose=verbose), *(() if narrow else rest))
    return table


def _blocks(what: str, blocks: tuple[BlockLife, ...], *, verbose: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(what, justify="right", no_wrap=True)
    for title in ("tag", "space", "lived", "address"):
        table.add_column(title, overflow="fold")
    for block in blocks:
        row = (_size(block.nbytes, verbose=verbose), block.tag or "untagged", block.space, _lived(block))
        table.add_row(*(Text(shown(cell)) for cell in (*row, f"{block.address:#x}")))
    return table


def _lived(block: BlockLife) -> str:
    start = "before" if block.start_ns is None else f"{block.start_ns / 1e9:.3f} s"
    return f"{start} - {'end' if block.end_ns is None else f'{block.end_ns / 1e9:.3f} s'}"
