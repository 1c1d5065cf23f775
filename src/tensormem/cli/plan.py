"""Owns: `tensormem plan`: static offsets for the blocks of a trace, with a progress bar, written as a plan file."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tensormem import errors
from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.screen import screen
from tensormem.cli.trace_files import read_blocks, refuse_overwriting, write_text
from tensormem.trace.plan_file import plan_to_json
from tensormem.trace.planning import plan as make_plan
from tensormem.units import format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from tensormem.trace import Plan, PlanProgress


@click.command()
@click.argument("trace")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help='Where to write it; "-": here.')
@click.option("-f", "--force", is_flag=True, help="Write over a file that is there.")
@click.option("--capacity", help="Stop as soon as it fits, for example 24GiB; ends with 1 if it does not.")
@click.option("--time-limit", type=click.FloatRange(min=0), default=5.0, show_default=True, help="In seconds.")
@click.option("--alignment", default="256", show_default=True, help="What offsets are multiples of.")
@click.option("--seed", type=int, default=1, show_default=True, help="Chance: the same seed, the same plan.")
@click.option("--json", "as_json", is_flag=True, help="Say the outcome as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Only the file and the exit code.")
@click.option("-v", "--verbose", is_flag=True, help="Show where each block goes.")
@click.option("--no-color", is_flag=True, help="No colours (NO_COLOR=1 does the same).")
@click.pass_context
def plan(
    context: click.Context,
    *,
    trace: str,
    output: Path | None,
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
    """Find a place in one block of memory for every block of TRACE ("-": standard input).

    Ctrl-C ends the search early with the best plan so far. Ends with 0 if there is a plan, 1 if it does not fit the
    capacity, 2 for a wrong command line or file.
    """
    refuse_overwriting(output, force=force)
    silent = quiet or as_json or str(output) == "-"
    console = screen(no_color=no_color)
    try:
        limit = None if capacity is None else parse_size(capacity)
        blocks = read_blocks(trace).lifetimes
        with _watching(console, time_limit, show=not silent and sys.stderr.isatty()) as progress:
            made = make_plan(blocks, limit, time_limit, alignment, progress, seed=seed)
    except errors.InvalidArgument as refusal:
        raise click.UsageError(str(refusal)) from None
    if output is not None:
        write_text(json.dumps(plan_to_json(made)) + "\n", output, force=force)
    fits = limit is None or made.height <= limit
    if as_json and str(output) != "-":
        click.echo(json.dumps({**_facts(made), "capacity": limit, "fits": fits, "output": output and str(output)}))
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


def _next_command(trace: str, output: Path | None, *, fits: bool) -> str:
    if not fits:
        return f"Next: tensormem plan {trace} --time-limit 60"
    if output is None:
        return f"Next: tensormem plan {trace} -o plan.json"
    return f"Next: tensormem replay {trace} --resource 'planned({output})' --resource pool"
