"""Owns: the watcher's end of the socket: asking one process, by its number.

Must not know: how answers are shown.
"""

from __future__ import annotations

from typing import Any

from tensormem.closable import Closable
from tensormem.top.conversation import converse
from tensormem.top.processes import connect

__all__ = ["Watch"]


class Watch(Closable):
    """A connection to a process that offers to be watched. It may be closed and made anew at any time.

    >>> import tensormem as tm
    >>> with tm.top.serve() as service, Watch(service.pid) as watch:
    ...     sorted(watch.ask()["totals"])[:2]
    ['charged_bytes', 'reserved_bytes']
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._connection = connect(pid)

    def ask(self, want: str = "snapshot") -> dict[str, Any]:
        """Its snapshot; `CannotWatch` when it has ended or answers something else."""
        return converse(self._connection, self.pid, want)

    def close(self) -> None:
        """Leave. The watched process does not care."""
        self._connection.close()
