"""Owns: a server for one trace and one person: on 127.0.0.1 only, on a port that the system chose, behind a token in
the address that nobody can guess, and for requests that name this very host (those of another site whose name
was made to lead to 127.0.0.1 do not).

Must not know: how data become a page; reports/page does.
"""

from __future__ import annotations

import secrets
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

from tensormem._core import Latch
from tensormem.errors import InvalidArgument, TimedOut, TraceError
from tensormem.reports.page import MOST_EVENTS, Window, page_html, payload_of, window_of
from tensormem.trace import Trace

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageServer:
    """Serves one trace until it is closed; a context manager that serves from a thread of its own.

    >>> import pathlib, tempfile, urllib.request
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.csv"
    >>> _ = path.write_text("id,lower,upper,size\\na,0,4,16\\nb,2,6,8\\n")
    >>> with PageServer(tm.trace.open(path)) as server, urllib.request.urlopen(server.url) as page:
    ...     page.status, page.read(15)
    (200, b'<!doctype html>')
    """

    def __init__(self, trace: Trace, *, port: int = 0, first: Window | None = None, most: int = MOST_EVENTS) -> None:
        self.token = secrets.token_urlsafe(24)
        self._trace, self._first, self._most = trace, first, most
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.daemon_threads = True
        self._server.owner = self
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ended = Latch()

    @property
    def port(self) -> int:
        """The port that the system chose."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """What to open in a browser; who has it can see the trace."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def wait(self, timeout: float | None = None) -> None:
        """Until somebody closes it, or Ctrl-C ends the wait; `TimedOut` after `timeout` seconds."""
        if self._thread is not None and not self._ended.wait(timeout):
            raise TimedOut(timeout or 0.0, what="the server was not closed")

    def close(self) -> None:
        """Stop answering and let go of the port. Twice is once."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()
        self._closed = True
        self._ended.open()

    def __enter__(self) -> PageServer:
        if self._closed or self._thread is not None:
            raise InvalidArgument(f"this server {'was closed' if self._closed else 'serves already'}; make a new one")
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="tensormem view", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def answer(self, target: str, host: str) -> tuple[HTTPStatus, str, dict[str, str], bytes]:
        """Status, type, further headers and body for a request."""
        try:
            parts = urlsplit(target)
        except ValueError:
            return HTTPStatus.BAD_REQUEST, "text/plain", {}, b"no address\n"
        if host not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            return HTTPStatus.FORBIDDEN, "text/plain", {}, b"this server answers to 127.0.0.1 only\n"
        token, _, rest = parts.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode("utf-8", "replace"), self.token.encode()):
            return (
                HTTPStatus.NOT_FOUND,
                "text/plain",
                {},
                b"no such page; use the address that was printed\n",
            )
        if rest == "":
            return HTTPStatus.OK, "text/html; charset=utf-8", {}, page_html()
        if rest == "data":
            return self._data(parts.query)
        return HTTPStatus.NOT_FOUND, "text/plain", {}, b"no such page\n"

    def _data(self, query: str) -> tuple[HTTPStatus, str, dict[str, str], bytes]:
        try:
            payload = payload_of(self._trace, self._window(query))
        except (InvalidArgument, TraceError) as error:
            return HTTPStatus.BAD_REQUEST, "text/plain; charset=utf-8", {}, f"{error}\n".encode()
        return HTTPStatus.OK, "application/octet-stream", {"X-Size": str(payload.size)}, payload.data

    def _window(self, query: str) -> Window:
        asked = parse_qs(query)
        if not asked:
            return self._first or window_of(self._trace, most=self._most)
        try:
            start, end = int(asked["from"][0]), int(asked["to"][0])
        except (KeyError, ValueError):
            raise InvalidArgument("a window is asked for by from= and to=, in nanoseconds") from None
        if not 0 <= start < end < 2**64:
            raise InvalidArgument(f"a window begins before it ends, not at {start} and {end}")
        return window_of(self._trace, start, end, most=self._most)


class _Server(ThreadingHTTPServer):
    owner: PageServer


class _Handler(BaseHTTPRequestHandler):
    """Asks the server's owner for every answer."""

    server: _Server
    server_version, sys_version = "tensormem", ""

    def do_GET(self) -> None:
        """Answers a request."""
        status, kind, more, body = self.server.owner.answer(self.path, self.headers.get("Host", ""))
        self.send_response(status)
        for name, value in ({"Content-Type": kind, "Content-Length": str(len(body))} | _HEADERS | more).items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True  # a browser that was closed meanwhile

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the address has the token in it."""
