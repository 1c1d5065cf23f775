"""Owns: the probes of the `TENSORMEM_*` variables: each one's value, and those that are wrong or unknown."""

from __future__ import annotations

from tensormem.config import Config, describe
from tensormem.errors import InvalidConfig
from tensormem.reports.machine.finding import Area, Outcome, degraded, works
from tensormem.reports.machine.probe import Probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensormem.reports.machine.system import System

_PREFIX = "TENSORMEM_"


def probes(environ: Mapping[str, str]) -> tuple[Probe, ...]:
    """One probe per variable that tensormem knows, and one per variable in `environ` that it does not."""
    known = [row[0] for row in describe(Config())]
    unknown = sorted(name for name in environ if name.startswith(_PREFIX) and name not in known)
    return (*map(_known_probe, known), *map(_unknown_probe, unknown))


def _known_probe(name: str) -> Probe:
    def ask(system: System) -> Outcome:
        given = {name: system.environ[name]} if name in system.environ else {}
        try:
            rows = describe(Config.from_environ(given))
        except InvalidConfig as error:
            return degraded(error.value, f"it takes {error.expected}", "Correct it, or unset it", f"unset {name}")
        _name, _expected, default, current, meaning = next(row for row in rows if row[0] == name)
        return works(current, f"{meaning} (default {default})")

    return Probe(name, Area.SETTING, ask)


def _unknown_probe(name: str) -> Probe:
    def ask(system: System) -> Outcome:
        why = "tensormem knows no such variable, so it does nothing"
        return degraded(system.environ[name], why, "Correct its name, or unset it", f"unset {name}")

    return Probe(name, Area.SETTING, ask)
