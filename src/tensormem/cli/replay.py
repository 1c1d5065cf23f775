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
from tensormem.trace import ReplayReport, Workload, workload_of, workloads_by_space
from tensormem.trace.replaying import replay as run_replay
from tensormem.units import format_size, parse_size

VERSION = 2


@click.command()
@trace_argument()
@click.option("-r", "--resource", "stacks", multiple=True, help='A stack: pool, elastic, "limiting(24GiB)/binning".')
@click.option("--space", help="Only the blocks of one memory space, for example gpu:0.")
@click.option("--capacity", help="How much memory each space has, for example 24GiB; without end unless told.")
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
    -o a picture (.svg) or all numbers (JSON) are written there. Every memory space is judged by itself. Ends with 0 if
    each of them fits with at least one of the stacks, 1 if one fits with none, 2 for a wrong command line or file.
    """
    check_free(output, force=force)
    try:
        limit = None if capacity is None else parse_size(capacity)
        with reading(trace) as opened:
            found = workloads_by_space(opened) if space is None else {space: workload_of(opened, space)}
        spaces = found or {"": Workload([])}
        options: dict[str, Any] = {"capacity": limit, "real": real, "time_limit": time_limit}
        show = sys.stderr.isatty() and not quiet
        with Progress(console=screen(no_color=no_color, stderr=True), transient=True, disable=not show) as bars:
            reports = [
                run_replay(
                    blocks.lifetimes,
                    stack,
                    space=name,
                    streams=blocks.streams,
                    progress=_bar(bars, f"{name} {stack}".strip()),
                    **options,
                )
                for name, blocks in spaces.items()
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
    context.exit(ExitCode.FINE if all(_verdicts(reports).values()) else ExitCode.FINDING)


def _verdicts(reports: list[ReplayReport]) -> dict[str, bool]:
    """Whether each space fits with at least one of the stacks."""
    fits: dict[str, bool] = {}
    for report in reports:
        fits[report.space] = fits.get(report.space, False) or report.fits
    return fits


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
        "fits": all(_verdicts(reports).values()),
        "spaces": _verdicts(reports),
        "replays": [report.as_json() for report in reports],
    }


def _draw(reports: list[ReplayReport], console: Console, limit: int | None, verbose: bool) -> None:
    verdicts = _verdicts(reports)
    several = len(verdicts) > 1
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in (*(("space",) if several else ()), "stack", "fits", "peak live", "peak reserved", "wasted", "events"):
        table.add_column(column, justify="left" if column in ("space", "stack", "fits") else "right")
    for report in reports:
        table.add_row(
            *((report.space,) if several else ()),
            report.stack,
            "[green]yes[/]" if report.fits else "[red]no[/]",
            format_size(report.peak_live),
            format_size(report.peak_reserved),
            f"{report.fragmentation:.1%}",
            f"{report.events_done:,} of {report.event_count:,}",
        )
    console.print(table)
    for report in reports:
        name = f"{report.stack} in {report.space}" if several else report.stack
        for sample in report.samples[:: max(1, len(report.samples) // 20)] if verbose else ():
            console.print(f"  {name} after {sample.event:,} events: {sample.fragmentation:.1%} wasted", markup=False)
        if report.failure is not None:
            console.print(f"{name}: first failure at {report.failure}", markup=False, soft_wrap=True)
        if report.counters:
            counted = ", ".join(f"{count:,} {name}" for name, count in report.counters.items())
            console.print(f"{name}: {counted}", markup=False, soft_wrap=True)
    if several:
        told = ", ".join(f"{space} {'fits' if fits else 'does not fit'}" for space, fits in verdicts.items())
        console.print(f"overall {'yes' if all(verdicts.values()) else 'no'}: {told}", markup=False, soft_wrap=True)
    if limit is not None:
        each = " for each space" if several else ""
        console.print(f"capacity {format_size(limit)}{each}", markup=False)


def _next_command(trace: str, reports: list[ReplayReport], capacity: str | None, output: str | None) -> str:
    room = f" --capacity {capacity}" if capacity else ""
    short = [space for space, fits in _verdicts(reports).items() if not fits]
    if short:
        where = f" --space {short[0]}" if short[0] else ""
        return f"Next: tensormem plan {trace}{where}{room} -o plan.json"
    if output is not None and output.endswith(".svg"):
        return f"Next: open {output} in a browser"
    return f"Next: tensormem replay {trace} -r pool -r arena -r planned{room} -o replay.svg"
