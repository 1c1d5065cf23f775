"""Owns: `tensormem record`: run a program and record what it does with memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
from rich.console import Console

from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.files import Refusal, check_free, reading
from tensormem.cli.options import screen_options
from tensormem.cli.screen import screen
from tensormem.top.directories import is_usable

_VERSION = 1


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", default="run.tmt", show_default=True, help="The trace; {pid} in it is the process.")
@click.option("-f", "--force", is_flag=True, help="Write over a file that is there.")
@click.option("--stacks", is_flag=True, help="Record the Python calls behind every event.")
@screen_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def record(
    context: click.Context,
    *,
    output: str,
    stacks: bool,
    force: bool,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND and record every allocation that it makes through tensormem.

    For example: tensormem record -o run.tmt -- python app.py. The command's own exit code is passed on. Its children
    record nothing, unless {pid} is in the name: then each process has a file of its own. While it runs, `tensormem top`
    can watch it. What is said at the end goes to standard error, because standard output is the command's.
    """
    if output == "-":
        raise Refusal(
            "a trace is written to a file, not to a pipe: processes that are killed leave it whole; give -o FILE"
        )
    check_free(output, force=force)
    target = Path(output).absolute()
    if force and "{pid}" not in output:
        target.unlink(missing_ok=True)
    environment = {**os.environ, "TENSORMEM_TRACE": str(target), "TENSORMEM_TRACE_STACKS": str(int(stacks))}
    environment.pop("_TENSORMEM_TRACE_OWNER", None)
    if is_usable():
        environment.setdefault("TENSORMEM_TOP", "1")
    code = _run(command, environment)
    if as_json:
        click.echo(json.dumps(_facts(target, code)), err=True)
    elif not quiet:
        _report(target, screen(no_color=no_color, stderr=True), verbose=verbose)
    context.exit(code)


def _run(command: tuple[str, ...], environment: dict[str, str]) -> int:
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise Refusal(f"{command[0]}: {error.strerror}") from None
    while True:
        try:
            code = process.wait()
            # As a shell says it: killed by a signal.
            return 128 - code if code < 0 else code
        except KeyboardInterrupt:
            continue  # the program got it too, and decides


def _facts(target: Path, code: int) -> dict[str, object]:
    facts: dict[str, object] = {
        "version": _VERSION,
        "output": str(target),
        "exit_code": code,
        "recorded": target.exists(),
    }
    if not target.exists():
        return facts
    with reading(str(target)) as trace:
        counts = {"events": trace.event_count, "dropped": trace.dropped, "duration_ns": trace.duration_ns}
        return {**facts, **counts, "complete": trace.complete}


def _report(target: Path, console: Console, *, verbose: bool) -> None:
    if "{pid}" in target.name:
        _say(console, f"Next: tensormem stats {target.parent / target.name.replace('{pid}', 'PID')}")
        return
    if not target.exists():
        _say(console, "Nothing was recorded: the program did not use tensormem's memory.")
        sys.exit(ExitCode.FINDING)
    with reading(str(target)) as trace:
        lost = f", {trace.dropped:,} lost" if trace.dropped else ""
        ended = "" if trace.complete else "; the process was killed"
        size = f", {target.stat().st_size:,} bytes" if verbose else ""
        _say(console, f"{trace.event_count:,} events in {trace.duration_ns / 1e9:.3f} s{size}{lost}{ended}")
    _say(console, f"Next: tensormem stats {target}")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
