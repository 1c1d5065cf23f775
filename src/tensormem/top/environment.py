"""Owns: the offer that the environment asks for with `TENSORMEM_TOP=1`: made when the core is loaded, and anew by a
forked child. What goes wrong is warned about: it must not keep a program from running.
Must not know: commands, except that they are no programs to watch.
"""

import os
import warnings

from tensormem.command_process import is_command
from tensormem.config import get_config
from tensormem.errors import CannotWatch
from tensormem.top.service import serve

__all__ = ["start"]


def start() -> None:
    """Serve, if the environment says so."""
    if not get_config().top or is_command():
        return
    _serve()
    os.register_at_fork(after_in_child=_serve)


def _serve() -> None:
    try:
        serve()
    except CannotWatch as error:
        warnings.warn(f"TENSORMEM_TOP=1 has no effect: {error}", RuntimeWarning, stacklevel=2)
