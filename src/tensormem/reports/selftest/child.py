"""Owns: the process of one group: opens the device, runs the checks, and tells the parent by lines of JSON.

Started by `process.py` as `python -m tensormem.reports.selftest.child DEVICE GROUP FD`; the group "facts" tells
the facts instead. Whatever happens here, the parent has every line that was told before.
"""

from __future__ import annotations

import json
import sys
import traceback
from time import perf_counter

from tensormem.errors import TensormemError
from tensormem.reports.selftest import facts
from tensormem.reports.selftest.group import promise
from tensormem.reports.selftest.groups import GROUPS
from tensormem.reports.selftest.outcome import Verdict
from tensormem.reports.selftest.promise import Broken, NotOffered
from tensormem.reports.selftest.subject import Subject

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from tensormem.reports.selftest.group import Check


def main(where: str, name: str, out: TextIO) -> None:
    """Runs a group, or tells the facts."""
    if name == "facts":
        _tell(out, facts=facts.collect(where))
        return
    subject = Subject(where)
    group = next(group for group in GROUPS if group.name == name)
    lacks = group.lacks(subject)
    if lacks:
        _tell(out, lacks=lacks)
        return
    for check in group.checks:
        _run(check, subject, out)
    subject.close()
    measurements = [(each.name, each.microseconds, each.bare_microseconds) for each in subject.measurements]
    _tell(out, done=True, calls=subject.calls(), measurements=measurements)


def _run(check: Check, subject: Subject, out: TextIO) -> None:
    _tell(out, begin=promise(check))
    start = perf_counter()
    verdict, why = Verdict.PASSED, ""
    try:
        check(subject)
    except NotOffered as lack:
        verdict, why = Verdict.NOT_OFFERED, str(lack)
    except Broken as trouble:
        verdict, why = Verdict.FAILED, str(trouble)
    except Exception as error:
        verdict, why = Verdict.FAILED, f"{_words(error)} ({_place(error)})"
    _tell(out, end=promise(check), verdict=verdict, why=why, seconds=perf_counter() - start, calls=subject.calls())


def _words(error: Exception) -> str:
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _place(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"


def _tell(out: TextIO, **facts: object) -> None:
    out.write(json.dumps(facts) + "\n")
    out.flush()


if __name__ == "__main__":
    with open(int(sys.argv[3]), "w", encoding="utf-8") as pipe:
        try:
            main(sys.argv[1], sys.argv[2], pipe)
        except TensormemError as refusal:
            _tell(pipe, refused=str(refusal))
