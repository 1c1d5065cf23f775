"""Owns: the one list of metrics: their names in both worlds, kinds, units, labels and meanings.

Labels take few values by design: the class of a resource and not its number, so that a program that makes resources all
day does not make series all day. Must not know: how values are found.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["FAMILIES", "Family", "Kind"]


class Kind(StrEnum):
    """How a value behaves.

    >>> Kind("counter") is Kind.COUNTER
    True
    """

    GAUGE = "gauge"  # goes up and down, and adding two of them up means nothing
    SUM = "sum"  # goes up and down, and can be added up
    COUNTER = "counter"  # only goes up


class Family(NamedTuple):
    """One metric.

    >>> FAMILIES["resource_used_bytes"].prometheus, FAMILIES["resource_used_bytes"].opentelemetry
    ('tensormem_resource_used_bytes', 'tensormem.resource.memory.usage')
    """

    prometheus: str
    opentelemetry: str
    kind: Kind
    unit: str
    """As OpenTelemetry writes it: By, 1, {block}."""
    labels: tuple[str, ...]
    meaning: str


_ROWS = (
    ("space_used_bytes", "space.memory.usage", Kind.SUM, "By", "space", "Bytes handed out, by memory space, each once"),
    (
        "space_reserved_bytes",
        "space.memory.reserved",
        Kind.SUM,
        "By",
        "space",
        "Bytes taken from the system, by memory space",
    ),
    (
        "space_charged_bytes",
        "space.memory.charged",
        Kind.SUM,
        "By",
        "space",
        "Bytes that limits count: blocks of resources and pages of elastic pools, by memory space",
    ),
    (
        "resource_used_bytes",
        "resource.memory.usage",
        Kind.SUM,
        "By",
        "resource space",
        "Bytes handed out by resources of a class",
    ),
    (
        "resource_reserved_bytes",
        "resource.memory.reserved",
        Kind.SUM,
        "By",
        "resource space",
        "Bytes that resources of a class took from below",
    ),
    (
        "resource_peak_bytes",
        "resource.memory.peak",
        Kind.GAUGE,
        "By",
        "resource space",
        "The most that one resource of a class had handed out",
    ),
    (
        "resource_retired_bytes",
        "resource.memory.retired",
        Kind.SUM,
        "By",
        "resource space",
        "Bytes given back that wait for streams",
    ),
    (
        "resource_blocks",
        "resource.blocks",
        Kind.SUM,
        "{block}",
        "resource space",
        "Blocks handed out by resources of a class",
    ),
    (
        "resource_fragmentation_ratio",
        "resource.memory.fragmentation",
        Kind.GAUGE,
        "1",
        "resource space",
        "The worst fragmentation of a resource of a class",
    ),
    ("resource_limit_bytes", "resource.memory.limit", Kind.SUM, "By", "resource space", "What limiting adaptors allow"),
    (
        "resource_allocations_total",
        "resource.allocations",
        Kind.COUNTER,
        "{allocation}",
        "resource space",
        "Blocks ever handed out by resources of a class",
    ),
    (
        "resource_allocated_bytes_total",
        "resource.memory.allocated",
        Kind.COUNTER,
        "By",
        "resource space",
        "Bytes ever handed out by resources of a class",
    ),
    (
        "pool_used_bytes",
        "pool.memory.usage",
        Kind.SUM,
        "By",
        "pool space",
        "Bytes in blocks of elastic pools and block caches",
    ),
    (
        "pool_reserved_bytes",
        "pool.memory.reserved",
        Kind.SUM,
        "By",
        "pool space",
        "Memory of the pages of elastic pools and block caches",
    ),
    (
        "pool_fragmentation_ratio",
        "pool.memory.fragmentation",
        Kind.GAUGE,
        "1",
        "pool space",
        "The worst fragmentation of an elastic pool",
    ),
    ("tenant_used_bytes", "tenant.memory.usage", Kind.SUM, "By", "tenant", "What a tenant has of its budget"),
    ("tenant_guaranteed_bytes", "tenant.memory.guaranteed", Kind.SUM, "By", "tenant", "What a tenant is guaranteed"),
    (
        "tenant_maximum_bytes",
        "tenant.memory.limit",
        Kind.SUM,
        "By",
        "tenant",
        "What a tenant can have at most; absent without a maximum",
    ),
    (
        "tenant_refusals_total",
        "tenant.refusals",
        Kind.COUNTER,
        "{refusal}",
        "tenant",
        "Claims of a tenant that found no room",
    ),
    ("budget_used_bytes", "budget.memory.usage", Kind.SUM, "By", "budget", "What everybody has of shared budgets"),
    ("budget_limit_bytes", "budget.memory.limit", Kind.SUM, "By", "budget", "What shared budgets allow"),
    (
        "pressure_level",
        "pressure.level",
        Kind.GAUGE,
        "1",
        "",
        "The worst level of a pressure adaptor: 0 normal, 1 warn, 2 critical",
    ),
    (
        "tag_used_bytes",
        "tag.memory.usage",
        Kind.SUM,
        "By",
        "tag space",
        "Bytes in blocks that Python holds, by tag; only where tags are asked for",
    ),
)

FAMILIES: dict[str, Family] = {
    name: Family(f"tensormem_{name}", f"tensormem.{dotted}", kind, unit, tuple(labels.split()), meaning)
    for name, dotted, kind, unit, labels, meaning in _ROWS
}
"""Every metric by its short name."""
