"""Owns: asking everything there is to ask, and the report that comes of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tensormem.reports.machine import devices, drivers, libraries, limits, memory, settings
from tensormem.reports.machine.finding import Finding, Status
from tensormem.reports.machine.system import System

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensormem.reports.machine.probe import Probe

JSON_VERSION = 1


@dataclass(frozen=True, slots=True)
class MachineReport:
    """Everything found on one machine.

    >>> examine()["host"].outcome.status
    <Status.WORKS: 'works'>
    """

    findings: tuple[Finding, ...]

    def __getitem__(self, name: str) -> Finding:
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(name)

    @property
    def usable(self) -> bool:
        """Whether tensormem can run here at all."""
        return self["host"].outcome.status is Status.WORKS

    @property
    def degraded(self) -> tuple[Finding, ...]:
        """What should work here and does not, or not fully."""
        return tuple(finding for finding in self.findings if finding.outcome.status is Status.DEGRADED)

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many findings there are of each status."""
        counted = Counter(finding.outcome.status for finding in self.findings)
        return {status: counted[status] for status in Status}

    def as_json(self) -> dict[str, object]:
        """Raw values under stable keys, with the version of this form."""
        return {"version": JSON_VERSION, "findings": [finding.as_json() for finding in self.findings]}


def examine(system: System | None = None) -> MachineReport:
    """Looks at this machine, or at another `system`. Takes some milliseconds and changes nothing.

    >>> sorted(status for status in examine().counts)
    [<Status.DEGRADED: 'degraded'>, <Status.MISSING: 'missing'>, <Status.WORKS: 'works'>]
    """
    asked = System() if system is None else system
    host, *others = _probes(asked)
    first = host.run(asked)
    # Without its system or its core there is nothing that the other probes could ask.
    rest = [probe.run(asked) for probe in others] if first.outcome.status is Status.WORKS else []
    return MachineReport((first, *(each for found in rest for each in (found, *_devices(asked, found)))))


def _devices(system: System, driver: Finding) -> list[Finding]:
    """The devices of a GPU driver that works, behind it; none of anything else."""
    works = driver.name in ("cuda", "rocm") and driver.outcome.status is Status.WORKS
    return devices.findings(system, driver.name) if works else []


def _probes(system: System) -> tuple[Probe, ...]:
    return (
        *drivers.probes(),
        *memory.probes(),
        *limits.probes(),
        *libraries.probes(),
        *settings.probes(system.environ),
    )
