"""Owns: the answers of this process: its snapshot with rates and history, made at most ten times a second.

Must not know: who asks, or over what.
"""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import tensormem
from tensormem.top.messages import parse_request, say

if TYPE_CHECKING:
    from tensormem.reports.live import RateHistory

__all__ = ["Answers"]

_FRESH = 0.1  # seconds for which one snapshot serves everybody
_SAMPLED = 1.0  # seconds between the samples of which rates are made


class Answers:
    """Answers to requests, as lines.

    >>> answers = Answers()
    >>> b'"command"' in answers.to(b'{"schema":"tensormem.top","version":1,"want":"hello"}')
    True
    >>> answers.to(b"good morning")
    b'{"schema":"tensormem.top","version":1,"error":"this is no line of JSON"}\\n'
    """

    def __init__(self) -> None:
        self._started = time.time()
        self._history: RateHistory | None = None  # what it is made of is loaded with the first sample
        self._made_at = -_FRESH
        self._line = b""

    def sample(self, now: float) -> float:
        """Note the counters; says when, by the monotonic clock, to do it again."""
        from tensormem.reports.live import RateHistory, take_snapshot

        self._history = self._history or RateHistory()
        with suppress(Exception):  # there is nobody to tell; who asks will hear of it
            self._history.add(take_snapshot(), now)
        return now + _SAMPLED

    def to(self, line: bytes) -> bytes:
        """The answer to one request. Whatever goes wrong is an answer too."""
        try:
            if parse_request(line) == "hello":
                return say(self._who())
            now = time.monotonic()
            if now - self._made_at >= _FRESH:
                self._line, self._made_at = say(self._content()), now
            return self._line
        except ValueError as error:
            return say({"error": str(error)})
        except Exception as error:  # of a resource written by a user, for example
            return say({"error": f"no snapshot could be taken: {error!r:.200}"})

    def _content(self) -> dict[str, Any]:
        from tensormem.reports.live import RateHistory, take_snapshot

        history = self._history or RateHistory()
        content = {**take_snapshot().as_json(), **self._who()}
        for each in content["resources"]:
            each.update(history.of_resource(each["id"])._asdict())
        content["rates"] = history.total._asdict()
        content["history"] = [moment._asdict() for moment in history.moments]
        return {key: value for key, value in content.items() if key not in ("schema", "version")}

    def _who(self) -> dict[str, object]:
        from tensormem.reports.live.snapshot import command_line

        return {
            "pid": os.getpid(),
            "command": command_line(),
            "offered_since": self._started,
            "tensormem": tensormem.__version__,
            "python": platform.python_version(),
        }
