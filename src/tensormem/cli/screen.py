"""Owns: where commands draw: one rich console, without colour when asked or when NO_COLOR is set."""

import os

from rich.console import Console


def screen(*, no_color: bool = False) -> Console:
    """A console on standard output. Without colour there are no escape codes at all."""
    if no_color or os.environ.get("NO_COLOR"):
        return Console(color_system=None, highlight=False)
    return Console(highlight=False)
