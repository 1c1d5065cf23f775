"""Owns: a plan as a file: JSON with a schema and a version, read strictly. Never a pickle.

    {"schema": "tensormem.plan", "version": 1, "alignment": 256, "height": ..., "bound": ..., "proven_optimal": true,
     "seconds": 0.01, "blocks": [["id", lower, upper, size, offset], ...]}

A foreign file is refused with `InvalidPlan` before any of it is used: `Plan` itself checks that no blocks collide.
Must not know: how plans are made or served.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tensormem.errors import InvalidArgument, InvalidPlan
from tensormem.trace.lifetimes import Lifetime
from tensormem.trace.planning import Plan

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["load_plan", "plan_from_json", "plan_to_json", "save_plan"]

SCHEMA = "tensormem.plan"
VERSION = 1
_KINDS: dict[str, type] = {
    "schema": str,
    "version": int,
    "alignment": int,
    "height": int,
    "bound": int,
    "proven_optimal": bool,
    "seconds": float,
    "blocks": list,
}
_BLOCK = (str, int, int, int, int)
_LIMIT = 2**62


def plan_to_json(plan: Plan) -> dict[str, object]:
    """The plan as values that JSON knows.

    >>> plan_to_json(Plan((Lifetime("a", 0, 2, 8),), (0,), 8, 8))["blocks"]
    [['a', 0, 2, 8, 0]]
    """
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "alignment": plan.alignment,
        "height": plan.height,
        "bound": plan.bound,
        "proven_optimal": plan.proven_optimal,
        "seconds": plan.seconds,
        "blocks": [[*each, offset] for each, offset in zip(plan.lifetimes, plan.offsets, strict=True)],
    }


def save_plan(plan: Plan, target: str | Path | TextIO) -> None:
    """Write a plan that `load_plan` gives back. A file that is there is replaced.

    >>> import io
    >>> text = io.StringIO()
    >>> save_plan(Plan((Lifetime("a", 0, 2, 8),), (0,), 8, 8), text)
    >>> load_plan(io.StringIO(text.getvalue())).height
    8
    """
    text = json.dumps(plan_to_json(plan)) + "\n"
    if isinstance(target, (str, Path)):
        Path(target).write_text(text, encoding="utf-8")
    else:
        target.write(text)


def load_plan(source: str | Path | TextIO) -> Plan:
    """The plan of a file. Anything but a whole and sound plan is `InvalidPlan`."""
    if isinstance(source, (str, Path)):
        return plan_from_json(Path(source).read_bytes(), str(source))
    return plan_from_json(source.read(), getattr(source, "name", "") or "")


def plan_from_json(text: str | bytes, source: str = "") -> Plan:
    """The plan in a text; `source` is what an error calls it.

    >>> plan_from_json("{}")
    Traceback (most recent call last):
    ...
    tensormem.errors.InvalidPlan: ...
    """

    def refuse(what: str) -> NoReturn:
        raise InvalidPlan(source, what=what) from None

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len({key for key, _ in pairs}) != len(pairs):
            refuse("a key comes twice")
        return dict(pairs)

    try:
        read = json.loads(text, object_pairs_hook=unique, parse_constant=lambda name: refuse(f"{name} is no number"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidPlan):
            raise
        refuse(f"it is not JSON: {str(error) or 'too deep'}")
    wrong = _mistake(read)
    if wrong is not None:
        refuse(wrong)
    blocks = read["blocks"]
    lifetimes = tuple(Lifetime(*block[:4]) for block in blocks)
    offsets = tuple(block[4] for block in blocks)
    proven, seconds, alignment = read["proven_optimal"], float(read["seconds"]), read["alignment"]
    try:
        return Plan(lifetimes, offsets, read["height"], read["bound"], proven, seconds, alignment)
    except InvalidArgument as error:
        refuse(error.what)


def _mistake(read: object) -> str | None:
    if not isinstance(read, dict) or read.keys() != _KINDS.keys():
        return f"it is not an object with exactly the keys {', '.join(_KINDS)}"
    for key, kind in _KINDS.items():
        if not _is(read[key], kind):
            return f"{key} is {read[key]!r:.40} and not {kind.__name__}"
    if (read["schema"], read["version"]) != (SCHEMA, VERSION):
        return f"it is {read['schema']!r:.40} of version {read['version']!r:.20}, not {SCHEMA} of version {VERSION}"
    if not 0 <= read["bound"] <= read["height"]:
        return "its height is under its bound"
    if read["alignment"] < 1 or read["alignment"] & (read["alignment"] - 1):
        return f"its alignment is {read['alignment']}"
    for number, block in enumerate(read["blocks"]):
        if not (isinstance(block, list) and len(block) == 5 and all(map(_is, block, _BLOCK))):
            return f"block {number} is not [id, lower, upper, size, offset]"
    return None


def _is(value: object, kind: type) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LIMIT
    return isinstance(value, kind)
