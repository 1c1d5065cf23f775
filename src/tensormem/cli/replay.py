"""Owns: `tensormem replay`: a trace through stacks of resources, as a table, a picture and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tensormem import errors
from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.screen import screen
from tensormem.cli.trace_files import read_blocks, refuse_overwriting, write_text
from tensormem.reports.replay_plot import replay_svg
from tensormem.trace.replaying import ReplayReport
from tensormem.trace.replaying import replay as run_replay
from tensormem.units import format_size, parse_size

VERSION = 1


@click.command()
@click.argument("trace")
@click.option("-r", "--resource", "stacks", multiple=True, help='A stack, such as pool or "limiting(24GiB)/binning".')
@click.option("--capacity", help="How much memory there is, for example 24GiB; without end unless told.")
@click.option("--real", is_flag=True, help="Take main memory instead of addresses only.")
@click.option(
    "--time-limit", type=click.FloatRange(min=0), default=5.0, show_default=True, help="Of a plan, in seconds."
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help='A picture (.svg), or JSON; "-": JSON here.'
)
@click.option("-f", "--force", is_flag=True, help="Write over a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="Say the outcome as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Only the file and the exit code.")
@click.option("-v", "--verbose", is_flag=True, help="Show fragmentation over time.")
@click.option("--no-color", is_flag=True, help="No colours (NO_COLOR=1 does the same).")
@click.pass_context
def replay(
    context: click.Context,
    *,
    trace: str,
    stacks: tuple[str, ...],
    capacity: str | None,
    real: bool,
    time_limit: float,
    output: Path | None,
    force: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    no_color: bool,
) -> None:
    """Would TRACE ("-": standard input) have fit? Runs it through stacks of resources.

    Ends with 0 if it fits with at least one of them, 1 if with none, 2 for a wrong command line or file.
    """
    refuse_overwriting(output, force=force)
    try:
        limit = None if capacity is None else parse_size(capacity)
        blocks = read_blocks(trace)
        reports = [
            run_replay(
                blocks.lifetimes, stack, capacity=limit, real=real, streams=blocks.streams, time_limit=time_limit
            )
            for stack in stacks or ("pool",)
        ]
    except errors.InvalidArgument as refusal:
        raise click.UsageError(str(refusal)) from None
    except OSError as error:
        raise click.UsageError(f"cannot read {error.filename}: {error.strerror}") from None
    outcome = json.dumps(_as_json(trace, limit, real, reports)) + "\n"
    if output is not None:
        write_text(replay_svg(reports, limit) if output.suffix == ".svg" else outcome, output, force=force)
    if as_json and str(output) != "-":
        click.echo(outcome, nl=False)
    elif not quiet and str(output) != "-":
        console = screen(no_color=no_color)
        _draw(reports, console, limit, verbose)
        console.print(_next_command(trace, reports, capacity, output), markup=False, soft_wrap=True)
    context.exit(ExitCode.FINE if any(report.fits for report in reports) else ExitCode.FINDING)


def _as_json(trace: str, limit: int | None, real: bool, reports: list[ReplayReport]) -> dict[str, object]:
    return {
        "schema": "tensormem.replay",
        "version": VERSION,
        "trace": trace,
        "capacity": limit,
        "real": real,
        "replays": [report.as_json() for report in reports],
    }


def _draw(reports: list[ReplayReport], console: Console, limit: int | None, verbose: bool) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("stack", "fits", "peak live", "peak reserved", "wasted", "events"):
        table.add_column(column, justify="left" if column in ("stack", "fits") else "right")
    for report in reports:
        table.add_row(
            report.stack,
            "[green]yes[/]" if report.fits else "[red]no[/]",
            format_size(report.peak_live),
            format_size(report.peak_reserved),
            f"{report.fragmentation:.1%}",
            f"{report.events_done:,} of {report.event_count:,}",
        )
    console.print(table)
    for report in reports:
        for sample in report.samples[:: max(1, len(report.samples) // 20)] if verbose else ():
            console.print(
                f"  {report.stack} after {sample.event:,} events: {sample.fragmentation:.1%} wasted", markup=False
            )
        if report.failure is not None:
            console.print(f"{report.stack}: first failure at {report.failure}", markup=False, soft_wrap=True)
        if report.counters:
            counted = ", ".join(f"{count:,} {name}" for name, count in report.counters.items())
            console.print(f"{report.stack}: {counted}", markup=False, soft_wrap=True)
    if limit is not None:
        console.print(f"capacity {format_size(limit)}", markup=False)


def _next_command(trace: str, reports: list[ReplayReport], capacity: str | None, output: Path | None) -> str:
    room = f" --capacity {capacity}" if capacity else ""
    if not any(report.fits for report in reports):
        return f"Next: tensormem plan {trace}{room} -o plan.json"
    if output is not None and output.suffix == ".svg":
        return f"Next: open {output} in a browser"
    return f"Next: tensormem replay {trace} -r pool -r arena -r planned{room} -o replay.svg"
