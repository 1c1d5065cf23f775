"""Owns: `tensormem replay`: a trace through stacks of resources, as a table, a picture and an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tensormem import errors
from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.files import Refusal, check_free, reading, writing
from tensormem.cli.options import output_options, screen_options, trace_argument
from tensormem.cli.screen import screen
from tensormem.reports.replay_plot import replay_svg
from tensormem.trace import ReplayReport, workload_of
from tensormem.trace.replaying import replay as run_replay
from tensormem.units import format_size, parse_size

VERSION = 1


@click.command()
@trace_argument()
@click.option("-r", "--resource", "stacks", multiple=True, help='A stack: pool, elastic, "limiting(24GiB)/binning".')
@click.option("--space", help="Only the blocks of one memory space, for example gpu:0.")
@click.option("--capacity", help="How much memory there is, for example 24GiB; without end unless told.")
@click.option("--real", is_flag=True, help="Take main memory instead of addresses only.")
@click.option("--time-limit", type=click.FloatRange(min=0), default=5.0, show_default=True, help="Seconds for a plan.")
@output_options
@screen_options
@click.pass_context
def replay(
    context: click.Context,
    *,
    trace: str,
    stacks: tuple[str, ...],
    space: str | None,
    capacity: str | None,
    real: bool,
    time_limit: float,
    output: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    no_color: bool,
) -> None:
    """Would TRACE have fit? Runs it through stacks of resources, on addresses without memory.

    TRACE is a recording (.tmt), a PyTorch memory snapshot, an RMM log or a CSV of lifetimes; - is standard input. With
    -o a picture (.svg) or all numbers (JSON) are written there. Ends with 0 if it fits with at least one of the stacks,
    1 if with none, 2 for a wrong command line or file.
    """
    check_free(output, force=force)
    try:
        limit = None if capacity is None else parse_size(capacity)
        with reading(trace) as opened:
            blocks = workload_of(opened, space)
        options: dict[str, Any] = {"capacity": limit, "real": real, "streams": blocks.streams, "time_limit": time_limit}
        show = sys.stderr.isatty() and not quiet
        with Progress(console=screen(no_color=no_color, stderr=True), transient=True, disable=not show) as bars:
            reports = [
                run_replay(blocks.lifetimes, stack, progress=_bar(bars, stack), **options)
                for stack in stacks or ("pool",)
            ]
    except errors.InvalidArgument as refusal:
        raise Refusal(str(refusal)) from None
    except OSError as error:
        raise Refusal(f"{error.filename}: {error.strerror}") from None
    outcome = json.dumps(_as_json(trace, limit, real, reports)) + "\n"
    if output is not None:
        with writing(output, force=force) as file:
            file.write((replay_svg(reports, limit) if output.endswith(".svg") else outcome).encode())
    if as_json and output != "-":
        click.echo(outcome, nl=False)
    elif not quiet and output != "-":
        console = screen(no_color=no_color)
        _draw(reports, console, limit, verbose)
        console.print(_next_command(trace, reports, capacity, output), markup=False, soft_wrap=True)
    context.exit(ExitCode.FINE if any(report.fits for report in reports) else ExitCode.FINDING)


def _bar(bars: Progress, stack: str) -> Callable[[float], None]:
    task = bars.add_task(stack, total=1.0)
    return lambda share: bars.update(task, completed=share)


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


def _next_command(trace: str, reports: list[ReplayReport], capacity: str | None, output: str | None) -> str:
    room = f" --capacity {capacity}" if capacity else ""
    if not any(report.fits for report in reports):
        return f"Next: tensormem plan {trace}{room} -o plan.json"
    if output is not None and output.endswith(".svg"):
        return f"Next: open {output} in a browser"
    return f"Next: tensormem replay {trace} -r pool -r arena -r planned{room} -o replay.svg"
