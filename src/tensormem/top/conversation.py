"""Owns: one question and its answer, with a limit to the time and size of the answer.

Must not know: how the other end was found.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from tensormem.errors import CannotWatch
from tensormem.top.messages import LONGEST_ANSWER, parse_answer, request

__all__ = ["converse"]

_PATIENCE = 5.0


def converse(connection: socket.socket, pid: int, want: str) -> dict[str, Any]:
    """What the process at the other end answers; `CannotWatch` when it does not."""
    try:
        connection.settimeout(_PATIENCE)
        connection.sendall(request(want))
        return parse_answer(_receive_line(connection))
    except TimeoutError:
        raise CannotWatch(pid, f"it did not answer in {_PATIENCE:g} seconds; it may be stopped") from None
    except ValueError as error:
        raise CannotWatch(pid, str(error)) from None
    except (OSError, EOFError):
        raise CannotWatch(pid, "it takes its offer back" if _lives(pid) else "it has ended") from None


def _receive_line(connection: socket.socket) -> bytes:
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        if sum(map(len, parts)) > LONGEST_ANSWER:
            raise ValueError(f"it answers with more than {LONGEST_ANSWER} bytes")
        part = connection.recv(2**18)
        if not part:
            raise EOFError
        parts.append(part)
    return b"".join(parts)


def _lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
