"""Owns: `tensormem record`: run a program and record what it does with memory."""

import os
import subprocess
import sys
from pathlib import Path

import click

from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.files import Refusal, check_free, reading


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", default="run.tmt", show_default=True, help="The trace; {pid} in it is the process.")
@click.option("--stacks", is_flag=True, help="Record the Python calls behind every event.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing at the end.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def record(
    context: click.Context, *, output: str, stacks: bool, force: bool, quiet: bool, command: tuple[str, ...]
) -> None:
    """Run COMMAND and record every allocation that it makes through tensormem.

    For example: tensormem record -o run.tmt -- python app.py. The command's own exit code is passed on. Its children
    record nothing, unless {pid} is in the name: then each process has a file of its own.
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
    code = _run(command, environment)
    if not quiet:
        _report(target)
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


def _report(target: Path) -> None:
    if "{pid}" in target.name:
        click.echo(f"Next: tensormem stats {target.parent / target.name.replace('{pid}', 'PID')}", err=True)
        return
    if not target.exists():
        click.echo("Nothing was recorded: the program did not use tensormem's memory.", err=True)
        sys.exit(ExitCode.FINDING)
    with reading(str(target)) as trace:
        lost = f", {trace.dropped:,} lost" if trace.dropped else ""
        ended = "" if trace.complete else "; the process was killed"
        click.echo(f"{trace.event_count:,} events in {trace.duration_ns / 1e9:.3f} s{lost}{ended}", err=True)
    click.echo(f"Next: tensormem stats {target}", err=True)
