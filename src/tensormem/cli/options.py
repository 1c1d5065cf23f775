"""Owns: the options that commands share, so that `-o`, `--json` and the rest mean the same everywhere."""

from collections.abc import Callable
from typing import Any

import click

_Command = Callable[..., Any]


def trace_argument(name: str = "trace") -> Callable[[_Command], _Command]:
    """A trace to read; "-" is standard input."""
    return click.argument(name, type=click.Path(exists=True, dir_okay=False, allow_dash=True))


def output_options(command: _Command) -> _Command:
    """`-o` and `-f`: where the result goes."""
    for option in (
        click.option("-f", "--force", is_flag=True, help="Write over a file that is there."),
        click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to write; - is standard output."),
    ):
        command = option(command)
    return command


def screen_options(command: _Command) -> _Command:
    """`--json`, `--no-color`, `-q`, `-v`: what is shown."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="More, and raw numbers beside the readable ones."),
        click.option("-q", "--quiet", is_flag=True, help="Only what matters most, and no next step."),
        click.option("--no-color", is_flag=True, help="No colours (NO_COLOR=1 does the same)."),
        click.option("--json", "as_json", is_flag=True, help="Raw values for programs, with a version."),
    ):
        command = option(command)
    return command
