"""Owns: an answer as lines to read: which columns there are, in which order rows stand, how figures are written.

The same for the live screen and for `--once`. Must not know: what draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, NamedTuple

from tensormem.units import format_size

__all__ = [
    "Row",
    "Sort",
    "headline",
    "pool_rows",
    "resource_rows",
    "spaces_in_short",
    "tenant_rows",
]

# The first is for names and the widest. Columns after the mark are for wide screens.
RESOURCE_COLUMNS = (
    "resource",
    "used",
    "peak",
    "reserved",
    "frag",
    "allocs/s",
    "|",
    "bytes/s",
    "blocks",
    "space",
    "notes",
)
POOL_COLUMNS = ("pool", "used", "reserved", "largest", "holes", "frag", "|", "limit")
TENANT_COLUMNS = ("tenant", "used", "peak", "guaranteed", "maximum", "refused", "|", "prio", "asked")

_Figures = dict[str, Any]


class Sort(StrEnum):
    """In which order resources stand: as a tree, or by a figure, the largest first.

    >>> Sort.TREE.next
    <Sort.USED: 'used'>
    """

    TREE = "tree"
    USED = "used"
    PEAK = "peak"
    RATE = "allocs/s"
    FRAGMENTATION = "frag"

    @property
    def next(self) -> Sort:
        """The one after it, around the circle."""
        orders = list(Sort)
        return orders[(orders.index(self) + 1) % len(orders)]


class Row(NamedTuple):
    """One line: a key that stays the same, its cells, whether it only repeats what stands below it, and whether it is
    folded.

    >>> Row("r1", ("Host #1", "2 MiB"), False, False).cells[1]
    '2 MiB'
    """

    key: str
    cells: tuple[str, ...]
    faint: bool
    folded: bool


_KEYS: dict[Sort, Callable[[_Figures], float]] = {
    Sort.USED: lambda each: float(each["used_bytes"]),
    Sort.PEAK: lambda each: float(each["peak_bytes"]),
    Sort.RATE: lambda each: float(each["allocations_per_second"]),
    Sort.FRAGMENTATION: lambda each: float(each["fragmentation"] or 0.0),
}


def headline(answer: _Figures) -> list[str]:
    """What matters most, in three lines and one for each space."""
    totals, rates, pressure = answer["totals"], answer["rates"], answer["pressure"]
    resident = "" if totals["resident_bytes"] is None else f", process {format_size(totals['resident_bytes'])}"
    stalled = "" if pressure["stalled_percent"] is None else f", {pressure['stalled_percent']:g} % of time stalled"
    waiting = f", {format_size(totals['retired_bytes'])} wait for streams" if totals["retired_bytes"] else ""
    return [
        f"{answer['command']}  (pid {answer['pid']})",
        f"used {format_size(totals['used_bytes'])} in {totals['used_blocks']:,} blocks{waiting}, "
        f"reserved {format_size(totals['reserved_bytes'])}{resident}",
        f"{_count(rates['allocations_per_second'])} allocations/s, {format_size(int(rates['bytes_per_second']))}/s, "
        f"pressure {pressure['level'] or 'not watched'}{stalled}",
        *(_space_line(space) for space in answer["spaces"]),
    ]


def spaces_in_short(answer: _Figures) -> str:
    """All spaces in one line."""
    return ", ".join(
        f"{space['name']} {format_size(space['used_bytes'])} of {format_size(space['reserved_bytes'])}"
        for space in answer["spaces"]
    )


def resource_rows(answer: _Figures, sort: Sort = Sort.TREE, folded: Collection[int] = ()) -> list[Row]:
    """The resources in order; with `Sort.TREE` what makes memory first, and on it what stands on it."""
    resources = answer["resources"]
    if sort is not Sort.TREE:
        return [_resource_row(each, "", False) for each in sorted(resources, key=_KEYS[sort], reverse=True)]
    known = {each["id"] for each in resources}
    above: dict[int | None, list[_Figures]] = {}
    for each in resources:
        above.setdefault(each["below"] if each["below"] in known else None, []).append(each)
    rows: list[Row] = []
    for root in above.get(None, []):
        _add_tree(root, above, folded, rows, "", "")
    return rows


def pool_rows(answer: _Figures) -> list[Row]:
    """Whatever keeps memory for reuse: pools that are resources, elastic pools, block caches."""
    rows = [
        _pool_row(f"r{each['id']}", _short(each["name"]), each, each["free_bytes"] or 0)
        for each in answer["resources"]
        if each["largest_free_bytes"] is not None or each["name"].startswith("Elastic")
    ]
    return rows + [_pool_row(f"p{each['id']}", each["name"], each, None) for each in answer["pools"]]


def tenant_rows(answer: _Figures) -> list[Row]:
    """The budgets that several share, each followed by its tenants."""
    rows: list[Row] = []
    for budget in answer["budgets"]:
        used, limit = format_size(budget["used_bytes"]), format_size(budget["limit_bytes"])
        cells = (f"{budget['name']} #{budget['id']}", used, "", "", limit, "", "", "")
        rows.append(Row(f"b{len(rows)}", cells, False, False))
        if budget["name"] == "TenantPool":
            tenants = [each for each in answer["tenants"] if each["pool"] == budget["id"]]
            rows += [_tenant_row(f"t{place}", each) for place, each in enumerate(tenants, len(rows))]
    return rows


def _space_line(space: _Figures) -> str:
    line = f"{space['name']}: used {format_size(space['used_bytes'])}, reserved {format_size(space['reserved_bytes'])}"
    if space["device_total_bytes"] is None:
        return line
    return f"{line}, {format_size(space['device_free_bytes'])} of {format_size(space['device_total_bytes'])} free"


def _add_tree(
    each: _Figures,
    above: dict[int | None, list[_Figures]],
    folded: Collection[int],
    rows: list[Row],
    mark: str,
    indent: str,
) -> None:
    children = above.get(each["id"], [])
    is_folded = bool(children) and each["id"] in folded
    rows.append(_resource_row(each, mark, is_folded))
    for child in [] if is_folded else children:
        last = child is children[-1]
        _add_tree(child, above, folded, rows, indent + ("└ " if last else "├ "), indent + ("  " if last else "│ "))


def _resource_row(each: _Figures, mark: str, is_folded: bool) -> Row:
    cells = (
        f"{mark}{_short(each['name'])} #{each['id']}{' …' if is_folded else ''}",
        format_size(each["used_bytes"]),
        format_size(each["peak_bytes"]),
        format_size(each["reserved_bytes"]),
        _percent(each["fragmentation"]),
        _count(each["allocations_per_second"]),
        f"{format_size(int(each['bytes_per_second']))}/s",
        f"{each['used_blocks']:,}",
        each["space"],
        _notes(each),
    )
    return Row(f"r{each['id']}", cells, not each["makes_blocks"], is_folded)


def _notes(each: _Figures) -> str:
    notes = [] if each["limit_bytes"] is None else [f"limit {format_size(each['limit_bytes'])}"]
    notes += [] if each["pressure"] is None else [f"pressure {each['pressure']}"]
    notes += [f"{format_size(each['retired_bytes'])} waits"] if each["retired_bytes"] else []
    return ", ".join(notes)


def _pool_row(key: str, name: str, each: _Figures, free: int | None) -> Row:
    largest = each["largest_free_bytes"]
    holes = "" if free is None or largest is None else format_size(max(0, free - largest))
    limit = each["limit_bytes"]
    cells = (
        f"{name.replace('VirtualMemoryPool', 'Elastic')} #{each['id']}",
        format_size(each["used_bytes"]),
        format_size(each["reserved_bytes"]),
        "" if largest is None else format_size(largest),
        holes,
        _percent(each["fragmentation"]),
        "" if limit is None else format_size(limit),
    )
    return Row(key, cells, False, False)


def _tenant_row(key: str, each: _Figures) -> Row:
    maximum = each["maximum_bytes"]
    cells = (
        f"└ {each['name']}",
        format_size(each["used_bytes"]),
        format_size(each["peak_bytes"]),
        format_size(each["guaranteed_bytes"]),
        "no limit" if maximum is None else format_size(maximum),
        f"{each['refusals']:,}",
        str(each["priority"]),
        f"{each['times_asked']:,}",
    )
    return Row(key, cells, False, False)


def _short(name: str) -> str:
    for ending in ("MemoryResource", "ResourceAdaptor"):
        if name.endswith(ending) and name != ending:
            return name.removesuffix(ending)
    return name


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _count(number: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"
