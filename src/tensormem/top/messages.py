"""Owns: what is said over the socket: one JSON object a line, each with a schema and a version.

Must not know: sockets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["SCHEMA", "VERSION", "parse_answer", "parse_request", "request", "say"]

SCHEMA = "tensormem.top"
VERSION = 1
_WANTS = ("hello", "snapshot")


def say(content: Mapping[str, Any]) -> bytes:
    """One line."""
    return json.dumps({"schema": SCHEMA, "version": VERSION, **content}, separators=(",", ":")).encode() + b"\n"


def request(want: str) -> bytes:
    """The line that asks for something.

    >>> request("hello")
    b'{"schema":"tensormem.top","version":1,"want":"hello"}\\n'
    """
    return say({"want": want})


def parse_request(line: bytes) -> str:
    """What a line asks for; `ValueError` says why it cannot be answered.

    >>> parse_request(request("snapshot"))
    'snapshot'
    """
    want = _parse(line).get("want")
    if want not in _WANTS:
        raise ValueError(f"this version knows the requests {' and '.join(_WANTS)}")
    return str(want)


def parse_answer(line: bytes) -> dict[str, Any]:
    """The content of an answer; `ValueError` for one that cannot be understood, or that says why there is none."""
    answer = _parse(line)
    if "error" in answer:
        raise ValueError(f"it answers: {answer['error']!s:.200}")
    return answer


def _parse(line: bytes) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("this is no line of JSON") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError(f"this is not the schema {SCHEMA}")
    if content.get("version") != VERSION:
        raise ValueError(f"it speaks version {content.get('version')!r:.20}, this is version {VERSION}")
    return content
