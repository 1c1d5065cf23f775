"""Owns: what happened, and where everything should go: lifetimes, replays, plans.

Must not know: how it is shown.
"""

from tensormem.trace.lifetimes import Lifetime, check_lifetimes, peak_load, read_lifetimes, write_lifetimes

__all__ = ["Lifetime", "check_lifetimes", "peak_load", "read_lifetimes", "write_lifetimes"]
