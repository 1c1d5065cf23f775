"""Owns: `tensormem selftest`: a device's tests and timings as a short table, and as a file to send back."""

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tensormem import errors
from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.screen import screen
from tensormem.reports.selftest import SelftestReport, examine_device


@click.command()
@click.option("--device", default="host", show_default=True, help="Which one: host, cuda:0, rocm:1.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Where to write the report as JSON.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--no-color", is_flag=True, help="No colours (NO_COLOR=1 does the same).")
@click.pass_context
def selftest(context: click.Context, *, device: str, output: Path | None, force: bool, no_color: bool) -> None:
    """Run the device suite and a few timings on a device.

    Needs pytest. Ends with 0 if the device passes, 1 if a test fails, 2 for a wrong command line, 3 if there is no such
    device.
    """
    path = output or Path(f"tensormem-selftest-{device.replace(':', '-')}.json")
    if path.exists() and not force:
        raise click.UsageError(f"{path} is there already; give --force or another --output")
    console = screen(no_color=no_color)
    try:
        report = examine_device(device)
    except (errors.DriverUnavailable, errors.InvalidArgument) as refusal:
        console.print(str(refusal), markup=False, soft_wrap=True)
        context.exit(ExitCode.ENVIRONMENT)
    path.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    draw(report, console)
    console.print(f"Next: send {path} to the project, with a word about the machine.", soft_wrap=True, markup=False)
    context.exit(ExitCode.FINE if report.passes else ExitCode.FINDING)


def draw(report: SelftestReport, console: Console) -> None:
    """What it is, what failed, and what calls take."""
    kind = " (simulated: its times say nothing about a GPU)" if report.simulated else ""
    console.print(f"{report.device}: {report.name}{kind}", markup=False, soft_wrap=True)
    console.print(f"{report.passed} passed, {len(report.failures)} failed, {report.skipped} skipped")
    for failure in report.failures:
        console.print(f"  {failure.test}: {failure.why}", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("what")
    table.add_column("microseconds", justify="right")
    for what, microseconds in report.microseconds.items():
        table.add_row(what, f"{microseconds:,.2f}")
    console.print(table)
