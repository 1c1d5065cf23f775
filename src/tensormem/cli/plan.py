"""Owns: `tensormem plan`: static offsets for the blocks of a trace, with a progress bar, written as a plan file."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tensormem import errors
from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.files import Refusal, check_free, reading, writing
from tensormem.cli.options import output_options, screen_options, trace_argument
from tensormem.cli.screen import screen
from tensormem.trace.plan_file import plan_to_json
from tensormem.trace.planning import plan as make_plan
from tensormem.trace.workload import workload_of_one
from tensormem.units import format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from tensormem.trace import Plan, PlanProgress


@click.command()
@trace_argument()
@click.option("--space", help="Only the blocks of one memory space, for example gpu:0.")
@click.option("--capacity", help="Stop as soon as it fits, for example 24GiB; ends with 1 if it does not.")
@click.option("--time-limit", type=click.FloatRange(min=0), default=5.0, show_default=True, help="In seconds.")
@click.option("--alignment", default="256", show_default=True, help="What offsets are multiples of.")
@click.option("--seed", type=int, default=1, show_default=True, help="Chance: the same seed, the same plan.")
@output_options
@screen_options
@click.pass_context
def plan(
    context: click.Context,
    *,
    trace: str,
    space: str | None,
    output: str | None,
    force: bool,
    capacity: str | None,
    time_limit: float,
    alignment: str,
    seed: int,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    no_color: bool,
) -> None:
    """Find a place in one block of memory for every block of TRACE.

    TRACE is a recording (.tmt), a PyTorch memory snapshot, an RMM log or a CSV of lifetimes; - is standard input. With
    -o the plan is written there. Ctrl-C ends the search early with the best plan so far. Ends with 0 if there is a
    plan, 1 if it does not fit the capacity, 2 for a wrong command line or file.
    """
    check_free(output, force=force)
    silent = quiet or as_json or output == "-"
    console = screen(no_color=no_color)
    try:
        limit = None if capacity is None else parse_size(capacity)
        with reading(trace) as opened:
            blocks = workload_of_one(opened, space)[1].lifetimes
        with _watching(console, time_limit, show=not silent and sys.stderr.isatty()) as progress:
            made = make_plan(blocks, limit, time_limit, alignment, progress, seed=seed)
    except errors.InvalidArgument as refusal:
        raise Refusal(str(refusal)) from None
    if output is not None:
        with writing(output, force=force) as file:
            file.write(json.dumps(plan_to_json(made)).encode() + b"\n")
    fits = limit is None or made.height <= limit
    if as_json and output != "-":
        click.echo(json.dumps({**_facts(made), "capacity": limit, "fits": fits, "output": output}))
    elif not silent:
        _draw(made, console, limit, verbose)
        console.print(_next_command(trace, output, fits=fits), markup=False, soft_wrap=True)
    context.exit(ExitCode.FINE if fits else ExitCode.FINDING)


@contextmanager
def _watching(console: Console, time_limit: float, *, show: bool) -> Iterator[Callable[[PlanProgress], bool]]:
    """A progress function that draws a bar, and that Ctrl-C makes say "enough" instead of raising."""
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True, no_color=console.no_color), transient=True, disable=not show)
    task = bar.add_task("planning", total=time_limit)

    def progress(now: PlanProgress) -> bool:
        height = f"{format_size(now.height)}, {now.over_bound:.4f} of the bound" if now.height else "planning"
        bar.update(task, completed=now.seconds, description=height)
        return not stopped

    try:
        before = signal.signal(signal.SIGINT, stop)
    except ValueError:  # not the main thread: nobody can press Ctrl-C on it
        before = None
    try:
        with bar:
            yield progress
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _facts(made: Plan) -> dict[str, object]:
    facts = plan_to_json(made)
    del facts["blocks"]
    return {**facts, "over_bound": made.over_bound, "block_count": len(made)}


def _draw(made: Plan, console: Console, limit: int | None, verbose: bool) -> None:
    console.print(f"{made} ({made.seconds:.2f} s)", markup=False, soft_wrap=True)
    if limit is not None:
        verdict = "fits" if made.height <= limit else "does not fit"
        console.print(f"It {verdict} in {format_size(limit)}.", markup=False)
    for lifetime, offset in zip(made.lifetimes, made.offsets, strict=True) if verbose else ():
        console.print(f"  {lifetime.id}: {offset:,} to {offset + lifetime.size:,}", markup=False, soft_wrap=True)


def _next_command(trace: str, output: str | None, *, fits: bool) -> str:
    if not fits:
        return f"Next: tensormem plan {trace} --time-limit 60"
    if output is None:
        return f"Next: tensormem plan {trace} -o plan.json"
    return f"Next: tensormem replay {trace} --resource 'planned({output})' --resource pool"
