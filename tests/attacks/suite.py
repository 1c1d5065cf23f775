"""Owns: what an attack suite is, and the list of all of them. Must not know: how cases are run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from attacks.outcome import Outcome

__all__ = ["Suite", "load_suite", "suite_names"]

# In the order of the table.
_MODULES = {
    "arguments": "attacks.arguments",
    "unmade": "attacks.unmade_objects",
    "reentrancy": "attacks.reentrancy",
    "closing": "attacks.close_races",
    "files": "attacks.damaged_files",
    "messages": "attacks.damaged_messages",
    "kills": "attacks.kills",
    "users": "attacks.other_users",
    "limits": "attacks.system_limits",
}

# Not an attack: cases that end badly, for the tests of the runner.
_PLANTED = "attacks.planted"

Note = Callable[[str], None]


@dataclass(frozen=True)
class Suite:
    """An attack: a case for every seed. `share` of all cases goes to it; `batch` cases run in one process."""

    name: str
    promise: str
    case: Callable[[Random, Note], Outcome]
    share: float
    batch: int
    # Once in a worker, which forks a child for every batch: imports and tables, but no thread and no descriptor.
    prepare: Callable[[], None] = lambda: None
    begin: Callable[[], None] = lambda: None
    # What a batch of cases must not leave behind is checked at its end; it raises.
    finish: Callable[[], None] = lambda: None
    why_not: Callable[[], str | None] = lambda: None


def suite_names() -> list[str]:
    """All there are."""
    return list(_MODULES)


def load_suite(name: str) -> Suite:
    """Imported when it is first asked for: a suite imports everything that it attacks."""
    suite: Suite = importlib.import_module(_MODULES.get(name, _PLANTED)).SUITE
    return suite
