"""Owns: where commands draw: one rich console, without colour when asked or when NO_COLOR is set."""

import os

from rich.console import Console


def screen(*, no_color: bool = False, stderr: bool = False) -> Console:
    """A console on standard output, or on that for errors. Without colour there are no escape codes at all."""
    if no_color or os.environ.get("NO_COLOR"):
        return Console(color_system=None, highlight=False, stderr=stderr)
    return Console(highlight=False, stderr=stderr)
