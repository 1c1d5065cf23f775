"""Owns: `tensormem export`: a trace in another tool's format."""

import json

import click

from tensormem.cli.files import check_free, reading, writing
from tensormem.cli.options import output_options, screen_options, trace_argument
from tensormem.cli.screen import screen
from tensormem.reports.traces.exports import FORMATS

_VERSION = 1


@click.command()
@trace_argument()
@click.option("-t", "--format", "name", type=click.Choice(sorted(FORMATS)), required=True, help="What to write.")
@output_options
@screen_options
def export(
    *,
    trace: str,
    name: str,
    output: str | None,
    force: bool,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Write a trace in another tool's format.

    \b
    rmm        RMM's log:  Thread,Time,Action,Pointer,Size,Stream
    torch      PyTorch's memory snapshot, for its viewer
    perfetto   Chrome's trace events, for ui.perfetto.dev
    csv        every event with all its fields
    json       the same with names and stacks, by a schema
    lifetimes  id,lower,upper,size, for tensormem plan

    Without -o it is written beside the trace, with the usual ending of the format; - is standard output. --json says
    what was written, for programs.
    """
    chosen = FORMATS[name]
    target = output or ("-" if trace == "-" else f"{trace.removesuffix('.tmt')}{chosen.suffix}")
    check_free(target, force=force)
    with reading(trace) as opened, writing(target, force=force, is_text=chosen.is_text) as out:
        chosen.write(opened, out)
        events, size = opened.event_count, out.tell() if target != "-" else None
    if target == "-":
        return
    if as_json:
        written = {"version": _VERSION, "source": trace, "format": name, "output": target, "nbytes": size}
        click.echo(json.dumps({**written, "events": events}))
    elif not quiet:
        console = screen(no_color=no_color, stderr=True)
        more = f" {events:,} events, {size:,} bytes." if verbose else ""
        console.print(f"Wrote {target}.{more} It opens in {chosen.opens_in}.", markup=False, soft_wrap=True)
        console.print(f"Next: tensormem stats {trace}", markup=False, soft_wrap=True)
