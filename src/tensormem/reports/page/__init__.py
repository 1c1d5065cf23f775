"""Owns: the page: a trace as one HTML file that needs nothing else, and the same data for a browser that asks for it.

The page itself is beside this file, in HTML, CSS and JavaScript of our own. Must not know: servers and command lines.
"""

from tensormem.public_functions import explain_misspellings
from tensormem.reports.page.document import page_html, page_of
from tensormem.reports.page.payload import Payload, payload_of
from tensormem.reports.page.windows import MOST_EVENTS, Window, parse_window, window_of

__all__ = ["MOST_EVENTS", "Payload", "Window", "page_html", "page_of", "parse_window", "payload_of", "window_of"]

explain_misspellings(globals())
