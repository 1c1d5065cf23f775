"""Owns: `tensormem merge`: the recordings of several processes on one timeline."""

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from tensormem import errors
from tensormem.cli.files import Refusal, check_free, writing
from tensormem.cli.options import screen_options
from tensormem.cli.screen import screen
from tensormem.distributed.clocks import ClockOffset
from tensormem.trace.merging import MergedSource
from tensormem.trace.merging import merge as merge_traces

_VERSION = 1


@click.command()
@click.argument("traces", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False), help="Where to write; - is standard output."
)
@click.option("-f", "--force", is_flag=True, help="Write over a file that is there.")
@click.option("--clocks", type=click.Path(exists=True, dir_okay=False), help="A JSON file of measured clock offsets.")
@screen_options
def merge(
    *,
    traces: tuple[str, ...],
    output: str,
    force: bool,
    clocks: str | None,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Write the recordings of several processes as one.

    Recordings of one machine share its clock and lie exactly. Those of other machines lie by the offsets of --clocks,
    which tensormem.distributed measures by round trips, or else by their calendars. Offsets and their errors are
    counters of the merged trace. What is said about each recording goes to standard error; with -v also where it is.
    """
    check_free(output, force=force)
    try:
        offsets = _read_clocks(clocks)
        with writing(output, force=force, is_text=False) as out:
            merged = merge_traces(traces, out, offsets=offsets)
    except errors.InvalidArgument as error:
        raise Refusal(str(error)) from None
    if as_json:
        facts = [{**source._asdict(), "clock": source.clock._asdict()} for source in merged]
        click.echo(json.dumps({"version": _VERSION, "output": output, "sources": facts}), err=output == "-")
    elif not quiet:
        _say(merged, traces, output, screen(no_color=no_color, stderr=True), verbose=verbose)


def _say(
    merged: Sequence[MergedSource], traces: tuple[str, ...], output: str, console: Console, *, verbose: bool
) -> None:
    for source, path in zip(merged, traces, strict=True):
        killed = "" if source.complete else ", the process was killed"
        clock = f"clock {source.clock.offset_ns:+,} ns, error at most {source.clock.error_ns:,} ns"
        where = f" ({path})" if verbose else ""
        line = f"{source.name}{where}: {source.events:,} events from {source.shift_ns / 1e9:.6f} s on, {clock}{killed}"
        console.print(line, markup=False, soft_wrap=True)
    if output != "-":
        console.print(f"Next: tensormem stats {output}", markup=False, soft_wrap=True)


def _read_clocks(path: str | None) -> dict[str, ClockOffset]:
    if path is None:
        return {}
    try:
        rows = json.loads(Path(path).read_text())["offsets"]
        return {name: ClockOffset(int(row["offset_ns"]), int(row["error_ns"])) for name, row in rows.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise errors.InvalidArgument(f"{path} is no file of clock offsets") from None
