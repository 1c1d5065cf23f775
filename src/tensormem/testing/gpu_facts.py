"""Owns: what a simulated GPU is told about itself, as the text that its library reads.

Must not know: how it is switched on.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tensormem import errors, units

__all__ = ["HABITS", "Habits", "MachineFacts", "config_text"]

Habits = bool | Mapping[str, bool]

HABITS = (
    "free_waits",
    "serial_host_functions",
    "peer_grants",
    "sizeless_descriptors",
    "bounded_queue",
    "capture_rules",
    "zero_byte_pools",
    "import_by_pointer",
    "timing_cost",
)
"""What real drivers do, by name; docs/explanation/gpus.md says what each is and where it comes from."""


class MachineFacts(NamedTuple):
    """What the device and its driver can do, where it is not what the profile says; see `simulated_gpu`."""

    version: int | None = None
    peer: int | None = None
    pools: int | None = None
    virtual: int | None = None
    managed: int | None = None
    concurrent: int | None = None
    posix: int | None = None
    integrated: int | None = None
    granularity: int | str | None = None
    recommended: int | str | None = None
    queue: int | None = None
    without: str | Sequence[str] | None = None


def config_text(sizes: Sequence[int | str], profile: str | None, habits: Habits | None, facts: MachineFacts) -> str:
    """The configuration of a machine with one GPU for each size.

    >>> config_text(["64MiB"], "h100", True, MachineFacts(peer=0, granularity="64KiB"))
    'memory=67108864,profile=h100,habits=1,peer=0,granularity=65536'
    """
    parts = ["memory=" + "+".join(str(units.parse_size(size)) for size in sizes)]
    if profile is not None:
        parts.append(f"profile={profile}")
    parts += _habit_parts(habits)
    parts += [f"{name}={_word(name, value)}" for name, value in facts._asdict().items() if value is not None]
    if any("," in part for part in parts):
        raise errors.InvalidArgument("no comma may be in an option of a simulated GPU")
    return ",".join(parts)


def _habit_parts(habits: Habits | None) -> list[str]:
    if isinstance(habits, bool):
        return [f"habits={int(habits)}"]
    wanted = dict(habits or {})
    for name, on in wanted.items():
        if name not in HABITS:
            raise errors.InvalidArgument(f"no habit is called {name!r:.60}; there are {', '.join(HABITS)}")
        if not isinstance(on, bool):
            raise errors.InvalidArgument(f"the habit {name} is True or False, not {on!r:.60}")
    return [f"{name}={int(on)}" for name, on in wanted.items()]


def _word(name: str, value: int | str | Sequence[str]) -> int | str:
    if name in ("granularity", "recommended") and isinstance(value, int | str):
        return units.parse_size(value)
    if isinstance(value, int):
        return int(value)
    return value if isinstance(value, str) else "+".join(value)
