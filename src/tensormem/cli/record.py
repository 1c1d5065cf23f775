"""Owns: `tensormem record`: run a program and record what it does with memory."""

import json
import re
from pathlib import Path

import click
from rich.console import Console

from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.files import Refusal, check_free, reading
from tensormem.cli.options import screen_options
from tensormem.cli.plain_text import shown
from tensormem.cli.program import RecordingOptions, environment_of, run_program
from tensormem.cli.screen import screen
from tensormem.errors import TensormemError
from tensormem.trace.extremes import extremes_of
from tensormem.units import format_size, parse_size

_VERSION = 1
_MOST_FILES = 8


class _Size(click.ParamType):  # type: ignore[type-arg]
    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if value == "off":
            return None
        try:
            return max(parse_size(str(value)), 1)
        except TensormemError as error:
            self.fail(str(error), param, ctx)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", default="run.tmt", show_default=True, help="The trace; {pid} in it is the process.")
@click.option("-f", "--force", is_flag=True, help="Write over a file that is there.")
@click.option("--stacks", is_flag=True, help="Record the Python calls behind every event.")
@click.option("--numpy/--no-numpy", default=True, show_default=True, help="Tell NumPy's arrays from other blocks.")
@click.option("--torch", is_flag=True, help="Write PyTorch's own history of GPU memory beside the trace.")
@click.option(
    "--malloc",
    "malloc_size",
    type=_Size(),
    default="64KiB",
    show_default=True,
    help="Record blocks of the C library (malloc, mmap) from this size on; off: none.",
)
@click.option("--follow-children", is_flag=True, help="Record child processes too, each into a file of its own.")
@screen_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def record(
    context: click.Context,
    *,
    output: str,
    stacks: bool,
    numpy: bool,
    torch: bool,
    malloc_size: int | None,
    follow_children: bool,
    force: bool,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND and record its large memory: tensormem's, NumPy's, PyTorch's, and that of every other library.

    For example: tensormem record -o run.tmt -- python app.py. Not a line of the program is changed. Its exit code is
    passed on; when that is 0 but the trace could not be written, it is 3. Its children record nothing, unless
    --follow-children is given or {pid} is in the name: then each process has a file of its own. While it runs,
    `tensormem top` can watch it. What is said at the end goes to standard error, because standard output is the
    command's.
    """
    if output == "-":
        raise Refusal(
            "a trace is written to a file, not to a pipe: processes that are killed leave it whole; give -o FILE"
        )
    options = RecordingOptions(
        output=output,
        stacks=stacks,
        numpy=numpy,
        torch=torch,
        malloc_bytes=malloc_size,
        follow_children=follow_children,
    )
    check_free(options.pattern, force=force)
    target = Path(options.pattern).absolute()
    before = _versions(target)
    if force and "{pid}" not in target.name:
        target.unlink(missing_ok=True)
        before = {}
    console = screen(no_color=no_color, stderr=True)
    failures: list[str] = []

    def failed(why: str) -> None:
        failures.append(why)
        _say(console, f"The recording cannot be written ({shown(why)}); what was written so far stays readable.")

    code = run_program(command, environment_of(options), failed)
    written = [path for path, version in _versions(target).items() if before.get(path) != version]
    if as_json:
        click.echo(json.dumps(_facts(target, written, code)), err=True)
    elif not quiet:
        _report(written, console, options, verbose=verbose)
    context.exit(code or (ExitCode.ENVIRONMENT if failures else 0))


def _versions(target: Path) -> dict[Path, tuple[int, int]]:
    """The files that the name may stand for, and when and how large they were written."""
    if "{pid}" not in target.name:
        found = [target] if target.exists() else []
    else:
        name = re.compile(r"\d+".join(map(re.escape, target.name.split("{pid}"))))
        found = [path for path in sorted(target.parent.glob("*")) if name.fullmatch(path.name)]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def _facts(target: Path, written: list[Path], code: int) -> dict[str, object]:
    facts: dict[str, object] = {
        "version": _VERSION,
        "output": str(target),
        "outputs": [str(path) for path in written],
        "exit_code": code,
        "recorded": bool(written),
    }
    if len(written) != 1:
        return facts
    with reading(str(written[0])) as trace:
        counts = {"events": trace.event_count, "dropped": trace.dropped, "duration_ns": trace.duration_ns}
        return {**facts, **counts, "complete": trace.complete}


def _report(written: list[Path], console: Console, options: RecordingOptions, *, verbose: bool) -> None:
    if not written:
        _say(console, "Nothing was recorded: the program loads no shared libraries, or it did not use tensormem.")
        return
    for path in written[:_MOST_FILES]:
        _say(console, _line(path, len(written) > 1, verbose=verbose))
    if len(written) > _MOST_FILES:
        _say(console, f"and {len(written) - _MOST_FILES} more")
    history = [path.with_name(f"{path.stem}.torch.pickle") for path in written]
    for path in history:
        if options.torch and path.exists():
            _say(console, f"GPU memory, as PyTorch tells it: tensormem stats {path}")
    if len(written) > 1:
        _say(console, f"Next: tensormem merge {' '.join(map(str, written[:_MOST_FILES]))} -o {options.output}")
    else:
        _say(console, f"Next: tensormem stats {written[0]}")


def _line(path: Path, several: bool, *, verbose: bool) -> str:
    with reading(str(path)) as trace:
        lost = f", {trace.dropped:,} lost" if trace.dropped else ""
        ended = "" if trace.complete else "; the process was killed"
        size = f", {path.stat().st_size:,} bytes" if verbose else ""
        highest = max((stretch.highest for stretch in extremes_of(trace)), default=0)
        peak = f"peak {format_size(highest)}" if highest else "no block was large enough (--malloc SIZE)"
        name = f"{path.name}: " if several else ""
        return f"{name}{trace.event_count:,} events in {trace.duration_ns / 1e9:.3f} s, {peak}{size}{lost}{ended}"


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
