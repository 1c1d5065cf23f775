"""Owns: `tensormem diff`: two traces, figure by figure."""

import click
from rich.table import Table
from rich.text import Text

from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.files import check_free, reading, write_json
from tensormem.cli.options import output_options, screen_options, trace_argument
from tensormem.cli.plain_text import shown
from tensormem.cli.screen import screen
from tensormem.reports.traces import Change, TraceDifference, compare, summarize
from tensormem.units import format_size


@click.command()
@trace_argument("before")
@trace_argument("after")
@output_options
@screen_options
@click.pass_context
def diff(
    context: click.Context,
    *,
    before: str,
    after: str,
    output: str | None,
    force: bool,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """What is different between two traces: peaks, what was left behind, failures.

    Ends with 0, or with 1 if AFTER has a higher peak, leaves more behind or fails more often than BEFORE.
    """
    check_free(output, force=force)
    with reading(before) as first:
        summary = summarize(first)
    with reading(after) as second:
        difference = compare(summary, summarize(second))
    if as_json or output is not None:
        write_json(difference.as_json(), output, force=force)
    else:
        console = screen(no_color=no_color)
        console.print(_table(difference, quiet=quiet, verbose=verbose))
        if not quiet:
            console.print(f"Next: tensormem stats {after}", soft_wrap=True, markup=False)
    context.exit(ExitCode.FINDING if difference.grew else ExitCode.FINE)


def _table(difference: TraceDifference, *, quiet: bool, verbose: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("what", overflow="fold")
    for title in (difference.before, difference.after, "difference"):
        table.add_column(Text(shown(title)), justify="right", overflow="fold")
    for change in difference.changes:
        if change.name and quiet:
            continue
        style = "yellow" if change.difference > 0 else "green" if change.difference < 0 else "dim"
        what = f"{change.what} {change.name}".rstrip()
        cells = (_value(change, change.before, verbose), _value(change, change.after, verbose))
        table.add_row(Text(shown(what)), *cells, Text(_difference(change, verbose), style=style))
    return table


def _value(change: Change, value: int, verbose: bool) -> str:
    if "bytes" not in change.what:
        return f"{value:,}"
    return f"{format_size(value)} ({value})" if verbose else format_size(value)


def _difference(change: Change, verbose: bool) -> str:
    if not change.difference:
        return "the same"
    sign = "+" if change.difference > 0 else "-"
    text = sign + _value(change, abs(change.difference), verbose)
    return text if change.percent is None else f"{text} ({change.percent:+.1f} %)"
