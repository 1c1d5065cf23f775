"""Owns: the live screen of `tensormem top`. Needs the extra `top` (textual).

Must not know: how answers come here.
"""

from tensormem.top.screen.app import Source, TopApp

__all__ = ["Source", "TopApp"]
