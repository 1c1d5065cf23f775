"""Owns: fault plans: the k-th system call of a scenario fails, for every k.

Must not know: what the scenario does.
"""

import errno
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tensormem import _core
from tensormem.public_functions import explain_misspellings

__all__ = ["count_system_calls", "each_system_call_fails", "failing_system_call"]


@contextmanager
def failing_system_call(nth: int, kind: str = "any", error: int = errno.ENOMEM) -> Iterator[None]:
    """Inside, the `nth` system call of `kind` that the host driver makes fails with `error`.

    >>> import tensormem as tm
    >>> from tensormem.testing.faults import failing_system_call
    >>> with failing_system_call(1, "mmap"):
    ...     tm.drivers.host().reserve("1GiB")
    Traceback (most recent call last):
    ...
    tensormem.errors.OutOfVirtualMemory: ...
    """
    _core.arm_fault(nth, kind, error)
    try:
        yield
    finally:
        _core.disarm_faults()


def count_system_calls(scenario: Callable[[], object], kind: str = "any") -> int:
    """How many system calls of `kind` the host driver makes while `scenario` runs."""
    _core.arm_fault(0, kind)
    try:
        scenario()
        return _core.system_calls_made()
    finally:
        _core.disarm_faults()


def each_system_call_fails(
    scenario: Callable[[], object], kind: str = "any", error: int = errno.ENOMEM
) -> Iterator[BaseException | None]:
    """Runs `scenario` once per system call it makes, failing that call; gives what each run raised, or None.

    Ends when a run gets through without reaching its failing call. The caller checks after each that nothing leaked.
    """
    nth = 0
    while True:
        nth += 1
        raised: BaseException | None = None
        _core.arm_fault(nth, kind, error)
        try:
            scenario()
        except Exception as caught:
            raised = caught
            traceback.clear_frames(caught.__traceback__)  # they would keep what the scenario held
        finally:
            fired = _core.fault_has_fired()
            _core.disarm_faults()
        if not fired:
            if raised is not None:
                raise raised
            return
        # A shortage keeps the maker that raised it: from here on only the caller holds it.
        outcome = [raised]
        raised = None
        yield outcome.pop()


explain_misspellings(globals())
