"""Owns: watching the memory of a process while it runs: what it offers to its own user, and what `tensormem top` shows.

Nothing is offered unless asked for, by `serve()` or by `TENSORMEM_TOP=1`. The screen needs the extra `top`; to offer
and to ask needs nothing. Must not know: command lines.
"""

from tensormem.public_functions import explain_misspellings
from tensormem.top.processes import Offer, offers
from tensormem.top.service import Service, close, serve
from tensormem.top.watch import Watch

__all__ = ["Offer", "Service", "Watch", "close", "offers", "serve"]

explain_misspellings(globals())
