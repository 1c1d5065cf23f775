"""Owns: what the number that a command ends with means. The same for every command."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended.

    >>> int(ExitCode.ENVIRONMENT)
    3
    """

    FINE = 0
    FINDING = 1  # the command worked, and found something that needs attention
    USAGE = 2  # the command line was wrong; click says so
    ENVIRONMENT = 3  # tensormem cannot run here: an extra, the system, or its core is missing
