"""Owns: what a group of checks is.

A check is a function of a `Subject`; the first line of its docstring is the promise that the report shows.
Must not know: any check, or where groups are run.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from tensormem.reports.selftest.subject import Subject

    Check: TypeAlias = "Callable[[Subject], object]"

__all__ = ["Group", "promise"]


class Group:
    """Checks that run one after the other in one process, with one time limit.

    >>> group = Group("memory", "Memory")
    >>> group.needs
    ()
    """

    def __init__(self, name: str, title: str, *needs: str, seconds: float = 60, gpu_only: bool = True) -> None:
        self.name, self.title, self.needs, self.seconds, self.gpu_only = name, title, needs, seconds, gpu_only
        self.checks: list[Check] = []

    def check(self, function: Check) -> Check:
        """Adds a check, as a decorator."""
        self.checks.append(function)
        return function

    def lacks(self, subject: Subject) -> str:
        """What the device would need for this group and does not have; empty when it has all."""
        if self.gpu_only and subject.platform is None:
            return "only a GPU has it"
        missing = [need.replace("_", " ") for need in self.needs if not subject.can(need)]
        return f"the device has no {' and no '.join(missing)}" if missing else ""


def promise(check: Check) -> str:
    """The promise that a check is about."""
    return (check.__doc__ or check.__name__).strip().partition("\n")[0].rstrip(".")
