"""Owns: the checks of the driver itself: its version, its words for its answers, its devices."""

from __future__ import annotations

from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import expect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("driver", "The driver")
_OUT_OF_MEMORY = 2


@GROUP.check
def version(subject: Subject) -> None:
    """The driver tells its version."""
    assert subject.platform is not None
    expect(subject.platform.version > 0, f"it says {subject.platform.version}")


@GROUP.check
def names_of_answers(subject: Subject) -> None:
    """The driver names and explains its answers."""
    assert subject.platform is not None
    name, text = subject.platform.explain(_OUT_OF_MEMORY)
    expect("memory" in name.lower().replace("_", ""), f"it calls being out of memory {name!r}")
    expect(text != "", f"it has no words for {name}")


@GROUP.check
def memory_of_devices(subject: Subject) -> None:
    """Every device tells its name and how much memory is free."""
    assert subject.platform is not None
    for driver in subject.platform.drivers:
        free, total = driver.memory_info()
        expect(0 < free <= total, f"{driver!r} says that {free} of {total} bytes are free")
        expect(driver.device_info()["name"] != "", f"{driver!r} has no name")


@GROUP.check
def attributes(subject: Subject) -> None:
    """The driver knows the facts that tensormem asks for."""
    assert subject.platform is not None
    known = subject.platform.attributes(subject.driver.device)
    expect("virtual_memory" in known, f"it knows {', '.join(known) or 'none'}")
