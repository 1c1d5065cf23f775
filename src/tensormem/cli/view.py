"""Owns: `tensormem view`: a trace in the browser, served by this machine to itself."""

import json
import webbrowser

import click

from tensormem.cli.files import Refusal, reading
from tensormem.cli.options import screen_options, trace_argument
from tensormem.errors import InvalidArgument
from tensormem.reports.page import MOST_EVENTS, parse_window, window_of
from tensormem.web import PageServer

_VERSION = 1


@click.command()
@trace_argument()
@click.option("--window", "asked", metavar="FROM:TO", help="Begin with this part, such as 1.5s:2s.")
@click.option(
    "--most", default=MOST_EVENTS, show_default=True, type=click.IntRange(1), help="Events at a time, at most."
)
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Which port; without, one that is free.")
@click.option("--no-open", is_flag=True, help="Only print the address; open no browser.")
@screen_options
def view(
    *,
    trace: str,
    asked: str | None,
    most: int,
    port: int,
    no_open: bool,
    as_json: bool,
    no_color: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Show a trace in the browser, of any length: it asks for the part that is looked at.

    Serves on 127.0.0.1 alone, to those who know the address it prints. Ctrl-C ends it.
    """
    with reading(trace) as opened:
        try:
            times = None if asked is None else parse_window(asked, steps=opened.format == "lifetimes")
            window = None if times is None else window_of(opened, *times, most=most)
            server = PageServer(opened, port=port, first=window, most=most)
        except InvalidArgument as error:
            raise Refusal(f"--window: {error}") from None
        except OSError as error:
            raise Refusal(f"port {port}: {error.strerror}") from None
        try:
            # It answers before the browser is opened: one in a terminal keeps us waiting until it is left.
            with server:
                _announce(server, trace, no_open=no_open, as_json=as_json, quiet=quiet)
                server.wait()
        except KeyboardInterrupt:
            if not quiet and not as_json:
                click.echo(f"\nNext: tensormem report {trace}", err=True)


def _announce(server: PageServer, trace: str, *, no_open: bool, as_json: bool, quiet: bool) -> None:
    url = server.url
    click.echo(json.dumps({"version": _VERSION, "source": trace, "url": url}) if as_json else url)
    opened = not no_open and webbrowser.open(url)
    if not quiet and not as_json:
        here = "Opened in the browser." if opened else "Open it in a browser of this machine."
        click.echo(f"{here} Ctrl-C ends it.", err=True)
