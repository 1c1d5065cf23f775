"""Owns: `tensormem doctor`: the machine report as a table or as JSON, and the exit code it deserves."""

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.files import check_free, write_json
from tensormem.cli.options import output_options, screen_options
from tensormem.cli.screen import screen
from tensormem.reports.machine import Area, Finding, MachineReport, Status, System, examine

_STYLES = {Status.WORKS: "green", Status.DEGRADED: "bold yellow", Status.MISSING: "dim"}
_TITLES = {
    Area.DRIVER: "Drivers",
    Area.MEMORY: "Memory",
    Area.LIMIT: "Limits",
    Area.LIBRARY: "Libraries",
    Area.SETTING: "Settings",
}
_FIRST_STEP = """python -c "import tensormem as tm; print(tm.mr.HostMemoryResource().allocate('1MiB'))\""""


@click.command()
@output_options
@screen_options
@click.pass_context
def doctor(
    context: click.Context,
    *,
    output: str | None,
    force: bool,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """What works on this machine, why the rest does not, and what to do.

    Ends with 0 if all is well, 1 if something needs attention, 2 for a wrong command line, 3 if tensormem cannot run
    here. A GPU that the machine does not have needs no attention. With -q only what needs attention is shown; with -o
    the report is written there as JSON.
    """
    check_free(output, force=force)
    report = examine(context.find_object(System))
    if as_json or output is not None:
        write_json(report.as_json(), output, force=force)
    else:
        draw(report, screen(no_color=no_color), quiet=quiet, verbose=verbose)
    context.exit(exit_code(report))


def exit_code(report: MachineReport) -> ExitCode:
    """The exit code that a report deserves."""
    if not report.usable:
        return ExitCode.ENVIRONMENT
    return ExitCode.FINDING if report.degraded else ExitCode.FINE


def draw(report: MachineReport, console: Console, *, quiet: bool = False, verbose: bool = False) -> None:
    """A table with a part per area, a summary, and the next command to type."""
    shown = report.degraded if quiet and report.usable else report.findings
    if not shown:
        return
    console.print(_table(shown, verbose=verbose))
    console.print()
    console.print(_summary(report))
    console.print(f"Next: {next_command(report)}", soft_wrap=True, markup=False)


def _table(findings: tuple[Finding, ...], *, verbose: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("what", no_wrap=True)
    table.add_column("status", width=8)
    table.add_column("value", overflow="fold", max_width=24)
    table.add_column("why, and what to do", overflow="fold")
    for area in Area:
        rows = [finding for finding in findings if finding.area is area]
        if rows:
            table.add_row()
            table.add_row(Text(_TITLES[area], style="bold"))
        for finding in rows:
            status = finding.outcome.status
            value = Text(_value(finding, verbose=verbose))
            table.add_row(Text(f"  {finding.name}"), Text(status, style=_STYLES[status]), value, Text(_why(finding)))
    return table


def _value(finding: Finding, *, verbose: bool) -> str:
    outcome = finding.outcome
    if verbose and outcome.unit and isinstance(outcome.value, int):
        return f"{outcome.value_text} ({outcome.value})"
    return outcome.value_text


def _why(finding: Finding) -> str:
    outcome = finding.outcome
    command = f"Type: {outcome.command}" if outcome.command else ""
    return ". ".join(text for text in (outcome.reason, outcome.advice, command) if text)


def _summary(report: MachineReport) -> Text:
    counts = report.counts
    summary = Text(f"{counts[Status.WORKS]} work", style=_STYLES[Status.WORKS])
    for status in (Status.DEGRADED, Status.MISSING):
        summary.append(", ").append(f"{counts[status]} {status}", style=_STYLES[status])
    return summary.append(f": {_verdict(report)}.")


def _verdict(report: MachineReport) -> str:
    if not report.usable:
        return "tensormem cannot run here"
    return "some things need attention" if report.degraded else "all is well"


def next_command(report: MachineReport) -> str:
    """What to type next: the first remedy, or a first step with tensormem."""
    troubled = report.degraded if report.usable else (report["host"],)
    remedies = [finding.outcome.command for finding in troubled if finding.outcome.command]
    if remedies:
        return remedies[0]
    return "tensormem doctor --json" if troubled else _FIRST_STEP
