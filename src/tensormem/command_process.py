"""Owns: whether this process is a command of ours, which is not a program to watch. Known before anything is loaded.

Must not know: any command.
"""

import os

__all__ = ["declare", "is_command"]

_commands: list[int] = []  # processes; a child made by fork is one of its own


def declare() -> None:
    """This process is a command of ours.

    >>> from tensormem import command_process
    >>> command_process.is_command()
    False
    """
    _commands.append(os.getpid())


def is_command() -> bool:
    """Whether somebody has declared it."""
    return os.getpid() in _commands
