"""Owns: the HTML of a page: our own parts put into one file, under a policy that lets the browser run them alone.

Nothing of a trace is ever written as HTML: it is in the data, in base64, and the page shows it as text.
Must not know: what is in the data.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from tensormem.reports.page.payload import Payload, payload_of
from tensormem.reports.page.windows import Window
from tensormem.trace import Trace

# In this order in one scope: each may use what stands before it, and the last one begins.
SCRIPTS = (
    "units.js",
    "reader.js",
    "columns.js",
    "summary.js",
    "block_table.js",
    "block_order.js",
    "model.js",
    "grouping.js",
    "searching.js",
    "canvas.js",
    "sheet.js",
    "block_bands.js",
    "usage_axis.js",
    "usage_picture.js",
    "usage.js",
    "overview.js",
    "addresses.js",
    "address_map.js",
    "flame.js",
    "tables.js",
    "facts.js",
    "controls.js",
    "page.js",
    "queries.js",
)


def page_of(trace: Trace, window: Window | None = None) -> bytes:
    """A trace as one HTML file that opens without a network.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.csv"
    >>> _ = path.write_text("id,lower,upper,size\\na,0,4,16\\nb,2,6,8\\n")
    >>> page_of(tm.trace.open(path))[:15]
    b'<!doctype html>'
    """
    return page_html(payload_of(trace, window))


def page_html(payload: Payload | None = None) -> bytes:
    """The page with its data, or without: then it asks the server that it came from."""
    head, tail = _parts(with_data=payload is not None)
    if payload is None:
        return head + tail
    data = b'<script type="text/plain" id="data" data-size="%d">' % payload.size
    return b"".join([head, data, base64.b64encode(payload.data), b"</script>\n", tail])


def content_security_policy(*, with_data: bool) -> str:
    """What a browser may do for the page: run our script, use our style; and ask its own server if it has no data."""
    connect = "'none'" if with_data else "'self'"
    return (
        f"default-src 'none'; script-src '{_digest(_script())}'; style-src '{_digest(_text('page.css'))}'; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


@cache
def _script() -> str:
    return "\n".join(['(() => {\n"use strict";', *(_text(name) for name in SCRIPTS), "})();\n"])


@cache
def _parts(*, with_data: bool) -> tuple[bytes, bytes]:
    page = _text("page.html").replace("@POLICY@", content_security_policy(with_data=with_data))
    head, tail = page.replace("@STYLE@", _text("page.css")).split("@DATA@")
    return head.encode(), tail.replace("@SCRIPT@", _script()).encode()
