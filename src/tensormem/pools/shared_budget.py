"""Owns: a budget that several processes share, and how it travels: by file descriptor, or through `multiprocessing`.

Must not know: pools. Give it to them as `budget=`.
"""

from collections.abc import Callable
from multiprocessing import current_process
from multiprocessing.reduction import ForkingPickler
from typing import NoReturn

from tensormem import _core
from tensormem._core import Participant
from tensormem.sockets.descriptors import Carried, carry, duplicate, with_carried

__all__ = ["Participant", "SharedBudget"]


class SharedBudget(_core.SharedBudget):
    """One limit of physical memory for several processes. Each is a participant and sees what the others use.

    `create` makes one, `attach` joins it in another process by its file descriptor; through `multiprocessing` it goes
    as an argument. A process that ends, however it ends, returns its share. A forked child has no part in it until it
    attaches. When memory is short, those above their fair share are asked through `on_pressure(wanted)`, which runs in
    a thread of its own; see `TenantPool`, whose rules are the same.

    >>> from tensormem.errors import OutOfPhysicalMemory
    >>> from tensormem.pools import SharedBudget
    >>> with SharedBudget.create("1GiB", name="first") as first:
    ...     second = SharedBudget.attach(first.fd, name="second", guaranteed="256MiB")  # in another process, usually
    ...     first.claim("768MiB")
    ...     try:
    ...         first.claim("1MiB")
    ...     except OutOfPhysicalMemory as error:
    ...         print(error.available)
    ...     [(each.name, each.used >> 20) for each in second.participants()]
    ...     first.give_back("768MiB")
    0
    [('first', 768), ('second', 0)]
    """

    def __reduce__(self) -> NoReturn:
        raise TypeError("a shared budget travels as an argument of a multiprocessing process, or by its descriptor")


def _rebuild(descriptor: Carried) -> SharedBudget:
    return with_carried(lambda fd: SharedBudget.attach(fd, name=current_process().name[:32]), descriptor)


def _reduce(budget: SharedBudget) -> tuple[Callable[..., SharedBudget], tuple[Carried, ...]]:
    return _rebuild, tuple(carry(duplicate(budget.fd)))


ForkingPickler.register(SharedBudget, _reduce)
