"""Owns: `tensormem selftest`: a device's checks as they happen, and the report as a page and as JSON."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tensormem import errors
from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.files import Refusal, check_free, writing
from tensormem.cli.options import output_options, screen_options
from tensormem.cli.screen import screen
from tensormem.reports.selftest import GroupResult, SelftestReport, Verdict, page
from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.groups import GROUPS
from tensormem.units import format_size

_STYLES = {
    Verdict.PASSED: "green",
    Verdict.NOT_OFFERED: "dim",
    Verdict.NOT_RUN: "dim",
    Verdict.FAILED: "bold red",
    Verdict.HUNG: "bold red",
    Verdict.CRASHED: "bold red",
}
_CODES = {
    Verdict.PASSED: ExitCode.FINE,
    Verdict.FAILED: ExitCode.FINDING,
    Verdict.NOT_RUN: ExitCode.ENVIRONMENT,
}


_FINE = {Verdict.PASSED: "All that the device offers passed.", Verdict.NOT_RUN: "The device offers none of it."}


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto (the first GPU), host, gpu:0, cuda:0, rocm:1.")
@click.option(
    "--group",
    "only",
    multiple=True,
    type=click.Choice([group.name for group in GROUPS]),
    help="Only this group of checks; can be given several times.",
)
@click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), help="Seconds for each group, instead of its own."
)
@output_options
@screen_options
@click.pass_context
def selftest(
    context: click.Context,
    *,
    device: str,
    only: tuple[str, ...],
    time_limit: float | None,
    output: str | None,
    force: bool,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Examine a device, and write a report to send back.

    Facts first, then groups of checks: each in a process of its own with a time limit, so that a hang or a crash is
    told and the rest goes on. The report is a page and a JSON file, without -o beside you with the name of the device;
    it is written in any case. --json prints the JSON instead.

    Ends with 0 if the device passes, 1 if a check fails, hangs or crashes, 2 for a wrong command line, 3 if the
    device cannot be examined or nothing of it was.
    """
    report = _report(device)
    console = screen(no_color=no_color, stderr=as_json or output == "-")
    with interruptible(report, _chosen(only)), console.status("asking the device what it is"):
        report.ask_facts()
    files = _files(output, report.where, as_json=as_json)
    for file in files:
        check_free(file, force=force)
    if report.subject:
        _run(report, _chosen(only), time_limit, console, quiet=quiet, verbose=verbose)
    for file, text in zip(files, _contents(report), strict=False):
        with writing(file, force=force) as out:
            out.write(text.encode())
    draw_end(report, console, files, quiet=quiet)
    context.exit(_CODES[report.verdict])


def _report(device: str) -> SelftestReport:
    """The report to fill; what is not the name of a device is refused, and nothing is opened."""
    try:
        return SelftestReport("auto") if device == "auto" else SelftestReport.of(device)
    except errors.TensormemError as refusal:
        raise Refusal(str(refusal)) from None


def _files(output: str | None, device: str, *, as_json: bool) -> tuple[str, ...]:
    """Where the JSON goes, and the page beside it."""
    if output == "-" or (as_json and output is None):
        return ("-",)
    data = Path(output or f"tensormem-selftest-{device.replace(':', '-')}.json")
    return str(data), str(data.with_suffix(".html"))


def _contents(report: SelftestReport) -> tuple[str, str]:
    return json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n", page(report)


def _chosen(only: tuple[str, ...]) -> list[Group]:
    return [group for group in GROUPS if not only or group.name in only]


@contextmanager
def interruptible(report: SelftestReport, groups: list[Group]) -> Iterator[None]:
    """Ctrl-C ends the body, and the report says which groups did not run."""
    try:
        yield
    except KeyboardInterrupt:
        report.stop(groups)


def _run(
    report: SelftestReport,
    groups: list[Group],
    limit: float | None,
    console: Console,
    *,
    quiet: bool,
    verbose: bool,
) -> None:
    if not quiet:
        draw_facts(report, console)
    with interruptible(report, groups), console.status("") as status:
        for group in groups:
            status.update(f"{group.title} (at most {group.seconds if limit is None else limit:g} seconds)")
            result = report.run(group, limit)
            if not quiet or result.verdict.is_trouble:
                draw_group(result, console, verbose=verbose)


def draw_facts(report: SelftestReport, console: Console) -> None:
    """What the device is, in two lines."""
    device, driver = report.subject["device"], report.subject.get("driver")
    kind = " (simulated: its times say nothing about a GPU)" if report.simulated else ""
    size = format_size(device["total_bytes"])
    console.print(f"{report.where}: {device['name']}, {size}{kind}", markup=False, soft_wrap=True)
    if driver:
        console.print(
            f"{driver['vendor']} {driver['version_text']} from {driver['library']}", markup=False, soft_wrap=True
        )


def draw_group(result: GroupResult, console: Console, *, verbose: bool = False) -> None:
    """One line for a group, and one for each check that did not pass."""
    line = Text("  ").append(f"{result.verdict:<12}", style=_STYLES[result.verdict]).append(result.title)
    if result.reason:
        line.append(f": {result.reason}")
    elif result.checks:
        line.append(f" ({result.count(Verdict.PASSED)} of {len(result.checks)}, {result.seconds:.1f} s)", style="dim")
    console.print(line, soft_wrap=True)
    for check in result.checks:
        if not verbose and (check.verdict is Verdict.PASSED or check.why == result.reason):
            continue
        said = Text("    ").append(f"{check.verdict:<12}", style=_STYLES[check.verdict]).append(check.name)
        console.print(said.append(f": {check.why}" if check.why else ""), soft_wrap=True)
    if result.measurements:
        console.print(_times(result))


def _times(result: GroupResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("    what")
    table.add_column("microseconds", justify="right")
    table.add_column("bare calls", justify="right")
    for each in result.measurements:
        bare = "" if each.bare_microseconds is None else f"{each.bare_microseconds:,.2f}"
        table.add_row(f"    {each.name}", f"{each.microseconds:,.2f}", bare)
    return table


def draw_end(report: SelftestReport, console: Console, files: tuple[str, ...], *, quiet: bool) -> None:
    """What came of it, and where the report is."""
    if report.refusal:
        console.print(f"{report.where} cannot be examined: {report.refusal}", markup=False, soft_wrap=True)
    elif report.interrupted:
        console.print("interrupted; the report has what was done so far", markup=False)
    if quiet or files == ("-",):
        return
    if not report.refusal and not report.interrupted:
        trouble = [group.title for group in report.groups if group.verdict.is_trouble]
        called = f"{len(report.calls) - len(report.uncalled)} of {len(report.calls)} driver functions were called"
        fine = (
            "All that the device offers passed."
            if report.verdict is Verdict.PASSED
            else "The device offers none of it."
        )
        said = f"Trouble: {', '.join(trouble)}." if trouble else fine
        console.print(f"{said} {called if report.calls else 'No driver library was needed'}.", soft_wrap=True)
    console.print(f"Next: look at {files[-1]}; send it and {files[0]} to the project.", soft_wrap=True, markup=False)
