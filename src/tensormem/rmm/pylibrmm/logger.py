"""Owns: the debug log by RMM's names and levels. Messages go to Python's logger "tensormem.rmm".

Who wants them in a file gives that logger a handler. Must not know: who logs.
"""

import logging
from enum import IntEnum

from tensormem.public_functions import explain_misspellings

__all__ = [
    "flush_logger",
    "get_flush_level",
    "get_logging_level",
    "level_enum",
    "set_flush_level",
    "set_logging_level",
    "should_log",
]


class level_enum(IntEnum):
    """How much is logged, from everything to nothing.

    >>> level_enum.warn > level_enum.info
    True
    """

    trace = 0
    debug = 1
    info = 2
    warn = 3
    error = 4
    critical = 5
    off = 6
    n_levels = 7


class _FlushLevel:
    """From which level on each message is flushed at once."""

    level = level_enum.off


_logger = logging.getLogger("tensormem.rmm")
_flush = _FlushLevel()
_PYTHON = {
    level_enum.trace: 5,
    level_enum.debug: logging.DEBUG,
    level_enum.info: logging.INFO,
    level_enum.warn: logging.WARNING,
    level_enum.error: logging.ERROR,
    level_enum.critical: logging.CRITICAL,
    level_enum.off: logging.CRITICAL + 10,
    level_enum.n_levels: logging.CRITICAL + 20,
}
_logger.setLevel(_PYTHON[level_enum.info])


def should_log(level: level_enum) -> bool:
    """Whether a message of this level would be logged."""
    _check(level)
    return _logger.isEnabledFor(_PYTHON[level])


def set_logging_level(level: level_enum) -> None:
    """Log messages of this level and above.

    >>> set_logging_level(level_enum.warn)
    >>> get_logging_level(), should_log(level_enum.info)
    (<level_enum.warn: 3>, False)
    >>> set_logging_level(level_enum.info)
    """
    _check(level)
    _logger.setLevel(_PYTHON[level])


def get_logging_level() -> level_enum:
    """The level from which on messages are logged."""
    return max(level for level, number in _PYTHON.items() if number <= max(_logger.level, _PYTHON[level_enum.trace]))


def set_flush_level(level: level_enum) -> None:
    """Flush after each message of this level and above."""
    _check(level)
    _flush.level = level


def get_flush_level() -> level_enum:
    """The level from which on each message is flushed."""
    return _flush.level


def flush_logger() -> None:
    """Bring what was logged so far to its destination."""
    for handler in _logger.handlers:
        handler.flush()


def log(level: level_enum, message: str) -> None:
    """Log a message, and flush it if its level asks for that."""
    _logger.log(_PYTHON[level], "%s", message)
    if level >= _flush.level:
        flush_logger()


def _check(level: object) -> None:
    if not isinstance(level, level_enum):
        raise TypeError(f"level must be an instance of level_enum, not {type(level).__name__}")


explain_misspellings(globals())
