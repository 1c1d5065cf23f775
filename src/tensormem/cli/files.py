"""Owns: files on the command line: traces that are read, results that are written, and what is said when either fails.

Must not know: any command.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click

from tensormem import errors
from tensormem.cli.exit_codes import ExitCode
from tensormem.cli.plain_text import shown
from tensormem.trace import Trace
from tensormem.trace import open as open_trace


class Refusal(click.ClickException):
    """What was given cannot be used; said in one line, without a traceback."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))


@contextmanager
def reading(path: str) -> Iterator[Trace]:
    """A trace for the body of a `with`; what is wrong with its file, also further in, is a `Refusal`."""
    try:
        with open_trace(path) as trace:
            yield trace
    except (errors.TraceError, errors.InvalidLifetimes) as error:
        raise Refusal(str(error)) from None
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}") from None


def check_free(output: str | None, *, force: bool) -> None:
    """`Refusal` when a file is there already and nobody said to write over it."""
    if output is not None and output != "-" and not force and Path(output).exists():
        raise Refusal(f"{output} is there already; give --force or another -o")


@contextmanager
def writing(output: str | None, *, force: bool, is_text: bool = True) -> Iterator[BinaryIO]:
    """Where the result goes: a file, or standard output. A file is there as a whole or not at all."""
    if output is None or output == "-":
        if not is_text and sys.stdout.isatty():
            raise Refusal("this format is not text; give -o FILE, or -o - into a pipe")
        yield sys.stdout.buffer
        return
    check_free(output, force=force)
    target = Path(output)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
        partial.replace(target)
    except OSError as error:
        raise Refusal(f"{output}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def write_json(document: dict[str, Any], output: str | None, *, force: bool) -> None:
    """A document, laid out for people to look at too."""
    with writing(output, force=force) as out:
        out.write(json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")
