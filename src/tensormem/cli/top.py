"""Owns: `tensormem top`: which process to watch, and whether as a screen, a table or JSON."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tensormem import errors
from tensormem.cli.clusters import cluster_of, table_of
from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.files import Refusal, check_free, write_json
from tensormem.cli.options import output_options, screen_options
from tensormem.cli.screen import screen
from tensormem.top import Watch, offers
from tensormem.top.rows import (
    POOL_COLUMNS,
    RESOURCE_COLUMNS,
    TENANT_COLUMNS,
    Row,
    headline,
    pool_rows,
    resource_rows,
    tenant_rows,
)

_HOW = "Start it with TENSORMEM_TOP=1, or call tensormem.top.serve() in it."


@click.command()
@click.argument("pid", type=click.IntRange(1), required=False)
@click.option("--ray", "ray_address", metavar="ADDRESS", help="All workers of a Ray cluster; auto is the one of here.")
@click.option("--dask", "dask_address", metavar="ADDRESS", help="All workers of a Dask cluster, by its scheduler.")
@click.option("--once", is_flag=True, help="One look, as a table or with --json, instead of a live screen.")
@click.option("--list", "list_only", is_flag=True, help="Only say which processes can be watched.")
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="In seconds.")
@output_options
@screen_options
@click.pass_context
def top(
    context: click.Context,
    *,
    pid: int | None,
    ray_address: str | None,
    dask_address: str | None,
    once: bool,
    list_only: bool,
    interval: float,
    output: str | None,
    force: bool,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Watch the memory of a process that uses tensormem, live.

    The process offers it: it was started with TENSORMEM_TOP=1, or has called tensormem.top.serve(). Without PID the
    only such process of this user is taken; if there are several, they are listed. --json and -o look once.
    With --ray or --dask all workers of a cluster are shown that tensormem.distributed has set up.

    Ends with 0, 1 if there is nothing to watch or what was watched has ended, 2 for a wrong command line, 3 if the
    screen needs a package that is not installed.
    """
    check_free(output, force=force)
    console = screen(no_color=no_color)
    if ray_address is not None or dask_address is not None:
        if pid is not None or list_only or None not in (ray_address, dask_address):
            raise click.UsageError("watch one process, one Ray cluster or one Dask cluster")
        looks_once = once or as_json or output is not None
        screens = None if looks_once else _screens()
        with cluster_of(ray_address, dask_address) as ask:
            if screens is not None:
                app = screens.ClusterApp(ask, interval)
                app.run()
                context.exit(ExitCode.FINDING if app.lost else ExitCode.FINE)
            elif as_json or output is not None:
                write_json(ask().as_dict(), output, force=force)
            else:
                stats = ask()
                drawn = table_of(stats, verbose=verbose) if console.is_terminal else Text(str(stats))
                console.print(drawn, soft_wrap=True)
        return
    if list_only or pid is None:
        found = [] if pid is not None and not list_only else offers()
        if list_only or len(found) != 1:
            _say_which(console, found, as_json=as_json, output=output, force=force)
            context.exit(ExitCode.FINE if list_only and found else ExitCode.FINDING)
        pid = found[0].pid
    try:
        with Watch(pid) as watch:
            if once or as_json or output is not None:
                _look_once(watch.ask(), console, as_json, output, force=force, quiet=quiet, verbose=verbose)
            elif not _live(watch, interval):
                context.exit(ExitCode.FINDING)
    except errors.CannotWatch as error:
        click.echo(f"Error: {error}", err=True)
        context.exit(ExitCode.FINDING)


def _say_which(console: Console, found: list[Any], *, as_json: bool, output: str | None, force: bool) -> None:
    if as_json or output is not None:
        processes = [offer._asdict() for offer in found]
        write_json({"schema": "tensormem.top.list", "version": 1, "processes": processes}, output, force=force)
        return
    if not found:
        click.echo(f"No process of this user can be watched. {_HOW}", err=True)
        return
    for offer in found:
        console.print(f"{offer.pid:>8}  {offer.command}", markup=False, soft_wrap=True)
    console.print(f"Next: tensormem top {found[0].pid}", markup=False)


def _look_once(
    answer: dict[str, Any],
    console: Console,
    as_json: bool,
    output: str | None,
    *,
    force: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    if as_json or output is not None:
        write_json(answer, output, force=force)
        return
    for line in headline(answer):
        console.print(Text(line), soft_wrap=True)
    for columns, rows in (
        (RESOURCE_COLUMNS, resource_rows(answer)),
        (POOL_COLUMNS, pool_rows(answer)),
        (TENANT_COLUMNS, tenant_rows(answer)),
    ):
        if rows and not (quiet and columns is not RESOURCE_COLUMNS):
            console.print()
            console.print(_table(columns, rows, verbose=verbose))
    if not quiet:
        console.print(f"\nNext: tensormem top {answer['pid']}", markup=False)


def _table(columns: tuple[str, ...], rows: list[Row], *, verbose: bool) -> Table:
    every = [name for name in columns if name != "|"]
    shown = len(every) if verbose else columns.index("|")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in every[:shown]:
        left = name in ("space", "notes", every[0])
        table.add_column(name, justify="left" if left else "right", no_wrap=not left)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row.cells[:shown]), style="dim" if row.faint else "")
    return table


def _live(watch: Watch, interval: float) -> bool:
    """The screen until somebody leaves; whether the process still ran then."""
    app = _screens().TopApp(watch, interval)
    app.run()
    return not app.ended


def _screens() -> Any:
    """The live screens, if there is what they need."""
    try:
        from tensormem.top import screen as screens
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        click.echo("The live screen needs the package textual, which is not installed. Type:", err=True)
        click.echo("    pip install 'tensormem[top]'", err=True)
        click.echo("or look once, with --once or --json.", err=True)
        sys.exit(ExitCode.ENVIRONMENT)
    if not sys.stdout.isatty():
        raise Refusal("the live screen needs a terminal; give --once for a table, --json for programs")
    return screens
