"""Owns: `tensormem report`: a trace as a page in one file."""

import json

import click

from tensormem.cli.files import Refusal, check_free, reading, writing
from tensormem.cli.options import screen_options, trace_argument
from tensormem.errors import InvalidArgument
from tensormem.reports.page import MOST_EVENTS, Payload, page_html, parse_window, payload_of, window_of
from tensormem.units import format_size

_VERSION = 1


@click.command()
@trace_argument()
@click.option("--window", "asked", metavar="FROM:TO", help="Only this part, such as 1.5s:2s or 250ms: to the end.")
@click.option(
    "--most", default=MOST_EVENTS, show_default=True, type=click.IntRange(1), help="Events in the page, at most."
)
@click.option("-f", "--force", is_flag=True, help="Write over a file that is there.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to write; - is standard output.")
@screen_options
def report(
    *,
    trace: str,
    asked: str | None,
    most: int,
    force: bool,
    output: str | None,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Write a page that shows a trace: usage over time, what lies where, flame graph, tables.

    The page is one file that needs no network and no server. Without -o it is written beside the trace, as .html. Of
    more than a million events it holds those around the peak, and says so; --window chooses others.
    """
    target = output or ("-" if trace == "-" else f"{trace.removesuffix('.tmt')}.html")
    check_free(target, force=force)
    with reading(trace) as opened:
        try:
            start, end = parse_window(asked, steps=opened.format == "lifetimes") if asked is not None else (0, None)
            payload = payload_of(opened, window_of(opened, start, end, most=most))
        except InvalidArgument as error:
            raise Refusal(f"--window: {error}") from None
    page = page_html(payload)
    with writing(target, force=force) as out:
        out.write(page)
    if as_json:
        click.echo(json.dumps(_document(trace, target, payload, len(page)), indent=2), err=target == "-")
    elif target != "-":
        _say(trace, target, payload, len(page), quiet=quiet, verbose=verbose)


def _document(trace: str, target: str, payload: Payload, nbytes: int) -> dict[str, object]:
    window = {"start_ns": payload.window.start_ns, "end_ns": payload.window.end_ns, "why": payload.window.why}
    facts = {"source": trace, "output": target, "nbytes": nbytes, "events": payload.events}
    return {"version": _VERSION, **facts, "window": None if payload.window.is_whole else window}


def _say(trace: str, target: str, payload: Payload, nbytes: int, *, quiet: bool, verbose: bool) -> None:
    raw = f" ({nbytes} bytes, {payload.size} of data before it was deflated)" if verbose else ""
    click.echo(f"Wrote {target}: {payload.events:,} events, {format_size(nbytes)}{raw}.", err=True)
    if not payload.window.is_whole:
        click.echo(f"It shows {payload.window.why}.", err=True)
    if not quiet:
        click.echo(f"Next: open {target} in a browser, or type: tensormem stats {trace}", err=True)
