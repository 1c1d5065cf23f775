"""Owns: running one question to the machine safely: whatever the machine answers becomes an outcome.

Must not know: which probes there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensormem.errors import TensormemError
from tensormem.reports.machine.finding import Area, Finding, Outcome, missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tensormem.reports.machine.system import System


@dataclass(frozen=True, slots=True)
class Probe:
    """A question with the name that its finding will have.

    >>> from tensormem.reports.machine import System
    >>> from tensormem.reports.machine.finding import works
    >>> Probe("cores", Area.LIMIT, lambda system: works(2, "seen")).run(System()).outcome.value
    2
    """

    name: str
    area: Area
    ask: Callable[[System], Outcome]

    def run(self, system: System) -> Finding:
        """The finding. What the machine refuses to tell, or tells in a way nobody understands, is missing."""
        try:
            outcome = self.ask(system)
        except (OSError, ValueError, ImportError, TensormemError) as error:
            outcome = missing("", f"it cannot be told: {explain(error)}")
        return Finding(self.name, self.area, outcome)


def explain(error: Exception) -> str:
    """An error in words, without Python's own decoration.

    >>> explain(FileNotFoundError(2, "No such file or directory", "/proc/meminfo"))
    '/proc/meminfo: No such file or directory'
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
