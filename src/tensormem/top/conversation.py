"""Owns: one question and its answer, as far as the process at the other end gives one.

Must not know: how the other end was found.
"""

from __future__ import annotations

import os
from typing import Any

from tensormem.errors import CannotWatch, SharingError, TimedOut
from tensormem.sockets.connection import Connection
from tensormem.sockets.deadline import ANSWER_SECONDS, Deadline
from tensormem.top.messages import parse_answer, request

__all__ = ["converse"]


def converse(connection: Connection, pid: int, want: str) -> dict[str, Any]:
    """What the process at the other end answers; `CannotWatch` when it does not."""
    try:
        return parse_answer(connection.ask(request(want), Deadline(ANSWER_SECONDS)))
    except TimedOut:
        raise CannotWatch(pid, f"it did not answer in {ANSWER_SECONDS:g} seconds; it may be stopped") from None
    except (OSError, EOFError, SharingError):
        raise CannotWatch(
            pid, "it takes its offer back" if os.path.exists(f"/proc/{pid}") else "it has ended"
        ) from None
    except ValueError as error:
        raise CannotWatch(pid, str(error)) from None
