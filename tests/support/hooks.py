"""Owns: hearing what reaches `sys.unraisablehook`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def unraisable() -> Iterator[list[BaseException]]:
    """Collects the exceptions that reach the hook inside."""
    heard: list[BaseException] = []

    def hear(report: Any) -> None:
        heard.append(report.exc_value)

    before, sys.unraisablehook = sys.unraisablehook, hear
    try:
        yield heard
    finally:
        sys.unraisablehook = before
