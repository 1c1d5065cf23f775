"""Owns: what the commands on traces share: reading a trace by name or from "-", and writing a file only where none is.

Must not know: what is done with them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from tensormem.trace import Lifetime, read_lifetimes


@dataclass(frozen=True)
class Blocks:
    """The blocks of a trace, and the number of the stream that each was on."""

    lifetimes: list[Lifetime]
    streams: list[int] | None = None


def read_blocks(trace: str) -> Blocks:
    """The blocks of a file of lifetimes; "-" is standard input. What cannot be read is a usage error."""
    try:
        return Blocks(read_lifetimes(sys.stdin if trace == "-" else trace))
    except OSError as error:
        raise click.UsageError(f"cannot read {trace}: {error.strerror}") from None


def write_text(text: str, output: Path, *, force: bool) -> None:
    """Write the text to a file that is not there yet, or to standard output for "-"."""
    if str(output) == "-":
        sys.stdout.write(text)
        return
    refuse_overwriting(output, force=force)
    output.write_text(text, encoding="utf-8")


def refuse_overwriting(output: Path | None, *, force: bool) -> None:
    """Say no before the work, not after it."""
    if output is not None and str(output) != "-" and output.exists() and not force:
        raise click.UsageError(f"{output} is there already; give --force or another --output")
