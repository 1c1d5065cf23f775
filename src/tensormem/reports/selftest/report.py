"""Owns: the report of one device: facts first, then what came of each group; and how it is put together.

Groups run one at a time, each in a process of its own, and the report can be written at any moment. Must not know: how
it is shown.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tensormem.drivers import COMPUTING, resolve
from tensormem.reports.selftest import facts
from tensormem.reports.selftest.outcome import GroupResult, Verdict
from tensormem.reports.selftest.process import Refused, collect_facts, run_group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from tensormem.drivers.where import WhereLike
    from tensormem.reports.selftest.group import Group

__all__ = ["SelftestReport"]

JSON_VERSION = 2


@dataclass(slots=True)
class SelftestReport:
    """What a device is, what it keeps of tensormem's promises, and what its calls take.

    >>> report = SelftestReport("auto")
    >>> report.verdict
    <Verdict.NOT_RUN: 'not run'>
    """

    asked: str
    machine: dict[str, Any] = field(default_factory=facts.of_the_machine)
    subject: dict[str, Any] = field(default_factory=dict)
    refusal: str = ""
    """Why the device cannot be examined at all; empty when it can."""
    groups: list[GroupResult] = field(default_factory=list)
    interrupted: bool = False
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @classmethod
    def of(cls, device: WhereLike) -> SelftestReport:
        """The report of a device, before anything is asked: opens nothing, and refuses what is not a device.

        >>> SelftestReport.of("cpu").asked
        'cpu'
        """
        meant = resolve(device, COMPUTING, "a device is tested")
        return cls(device if isinstance(device, str) else str(meant))

    @property
    def where(self) -> str:
        """The device, by vendor and number where it is known."""
        return str(self.subject.get("where", self.asked))

    @property
    def simulated(self) -> bool:
        """Whether it is a simulated GPU."""
        return bool(self.subject.get("device", {}).get("simulated"))

    @property
    def verdict(self) -> Verdict:
        """Trouble if any group has it; `not run` when nothing passed."""
        if any(group.verdict.is_trouble for group in self.groups):
            return Verdict.FAILED
        passed = any(group.verdict is Verdict.PASSED for group in self.groups)
        return Verdict.PASSED if passed and not self.interrupted else Verdict.NOT_RUN

    @property
    def calls(self) -> dict[str, int]:
        """How often each function of the driver was called in all groups."""
        counted: Counter[str] = Counter()
        for group in self.groups:
            counted.update({name: count for name, count in group.calls.items() if count is not None})
        return {name: counted[name] for name in sorted(counted)}

    @property
    def uncalled(self) -> list[str]:
        """The functions of the driver that no group called."""
        return [name for name, count in self.calls.items() if count == 0]

    def ask_facts(self) -> bool:
        """Asks the device what it is; False, and `refusal` says why, when it cannot be opened."""
        try:
            self.subject = collect_facts(self.asked)
        except Refused as refused:
            self.refusal = str(refused)
        return not self.refusal

    def run(self, group: Group, seconds: float | None = None) -> GroupResult:
        """Runs a group, for so many seconds at the most instead of its own limit, and keeps what came of it."""
        self.groups.append(run_group(self.where, group, seconds))
        return self.groups[-1]

    def stop(self, rest: Iterable[Group]) -> None:
        """Notes that the user ended it before those of these groups were done that are not."""
        self.interrupted = True
        done = {group.name for group in self.groups}
        self.groups += [
            GroupResult(each.name, each.title, ending=Verdict.NOT_RUN, why="it was interrupted")
            for each in rest
            if each.name not in done
        ]

    def as_json(self) -> dict[str, object]:
        """Raw values under stable keys, with the version of this form."""
        return {
            "version": JSON_VERSION,
            "started": self.started,
            "device": self.where,
            "simulated": self.simulated,
            "verdict": str(self.verdict),
            "refusal": self.refusal,
            "interrupted": self.interrupted,
            "machine": self.machine,
            "facts": self.subject,
            "groups": [group.as_json() for group in self.groups],
            "calls": self.calls,
            "uncalled": self.uncalled,
        }
