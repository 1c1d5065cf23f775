"""Owns: `tensormem export`: a trace in another tool's format."""

import click

from tensormem.cli.files import check_free, reading, writing
from tensormem.cli.options import output_options, trace_argument
from tensormem.reports.traces.exports import FORMATS


@click.command()
@trace_argument()
@click.option("-f", "--format", "name", type=click.Choice(sorted(FORMATS)), required=True, help="What to write.")
@output_options
@click.option("-q", "--quiet", is_flag=True, help="Say nothing.")
def export(*, trace: str, name: str, output: str | None, force: bool, quiet: bool) -> None:
    """Write a trace in another tool's format.

    \b
    rmm        RMM's log:  Thread,Time,Action,Pointer,Size,Stream
    torch      PyTorch's memory snapshot, for its viewer
    perfetto   Chrome's trace events, for ui.perfetto.dev
    csv        every event with all its fields
    json       the same with names and stacks, by a schema
    lifetimes  id,lower,upper,size, for tensormem plan

    Without -o it is written beside the trace, with the usual ending of the format; - is standard output.
    """
    chosen = FORMATS[name]
    target = output or ("-" if trace == "-" else f"{trace.removesuffix('.tmt')}{chosen.suffix}")
    check_free(target, force=force)
    with reading(trace) as opened, writing(target, force=force, is_text=chosen.is_text) as out:
        chosen.write(opened, out)
    if not quiet and target != "-":
        click.echo(f"Wrote {target}. It opens in {chosen.opens_in}.", err=True)
        click.echo(f"Next: tensormem stats {trace}", err=True)
