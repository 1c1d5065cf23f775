"""Owns: `tensormem selftest`: a device's tests and timings as a short table, and as a file to send back."""

import click
from rich.console import Console
from rich.table import Table

from tensormem import errors
from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.files import check_free, write_json
from tensormem.cli.options import output_options, screen_options
from tensormem.cli.screen import screen
from tensormem.reports.selftest import SelftestReport, examine_device


@click.command()
@click.option("--device", default="host", show_default=True, help="Which one: main, gpu:0, cuda:0, rocm:1.")
@output_options
@screen_options
@click.pass_context
def selftest(
    context: click.Context,
    *,
    device: str,
    output: str | None,
    force: bool,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Run the device suite and a few timings on a device.

    Needs pytest. The report is written as JSON, without -o beside you with the name of the device; --json shows it
    instead. Ends with 0 if the device passes, 1 if a test fails, 2 for a wrong command line, 3 if there is no such
    device.
    """
    path = output or ("-" if as_json else f"tensormem-selftest-{device.replace(':', '-')}.json")
    check_free(path, force=force)
    console = screen(no_color=no_color)
    try:
        report = examine_device(device)
    except (errors.DriverUnavailable, errors.InvalidArgument) as refusal:
        screen(no_color=no_color, stderr=True).print(str(refusal), markup=False, soft_wrap=True)
        context.exit(ExitCode.ENVIRONMENT)
    write_json(report.as_json(), path, force=force)
    if path != "-" and not as_json:
        draw(report, console, quiet=quiet, verbose=verbose)
        if not quiet:
            step = f"Next: send {path} to the project, with a word about the machine."
            console.print(step, soft_wrap=True, markup=False)
    context.exit(ExitCode.FINE if report.passes else ExitCode.FINDING)


def draw(report: SelftestReport, console: Console, *, quiet: bool = False, verbose: bool = False) -> None:
    """What it is, what failed, and what calls take."""
    kind = " (simulated: its times say nothing about a GPU)" if report.simulated else ""
    console.print(f"{report.device}: {report.name}{kind}", markup=False, soft_wrap=True)
    console.print(f"{report.passed} passed, {len(report.failures)} failed, {report.skipped} skipped")
    for failure in report.failures:
        console.print(f"  {failure.test}: {failure.why}", markup=False, soft_wrap=True)
    if quiet:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("what")
    table.add_column("microseconds", justify="right")
    for what, microseconds in report.microseconds.items():
        table.add_row(what, f"{microseconds:,.4f}" if verbose else f"{microseconds:,.2f}")
    console.print(table)
