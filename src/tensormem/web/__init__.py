"""Owns: showing a trace to a browser of this machine, window by window.

Must not know: command lines, or what the page looks like.
"""

from tensormem.public_functions import explain_misspellings
from tensormem.web.server import PageServer

__all__ = ["PageServer"]

explain_misspellings(globals())
