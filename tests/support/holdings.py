"""Owns: what this process holds, and the promise that a piece of code leaves none of it behind."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import tensormem as tm
from support.waiting import eventually

_COUNTED = (
    "streams",
    "events",
    "page_blocks",
    "pins",
    "reservations",
    "mappings",
    "physicals",
    "committed_bytes",
    "leftovers",
)


def open_descriptors() -> int:
    """How many descriptors are open, once garbage is gone and the file that shared memory keeps for the next one."""
    gc.collect()
    tm.mr.SharedMemoryResource().trim()
    return len(os.listdir("/proc/self/fd"))


def held() -> dict[str, int]:
    """What the host driver holds at this moment, and the open file descriptors."""
    descriptors = open_descriptors()
    facts = dict(tm._core.host_facts())
    counted = {name: int(str(facts[name])) for name in _COUNTED}
    return {**counted, "descriptors": descriptors}


def _open_what_stays_open() -> None:
    """The file behind all pages is opened by the first of them and kept for the next."""
    host = tm._core.host_driver()
    host.physical_destroy(host.physical_create(host.granularity()[0]))


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """What is held at the end is what was held at the beginning."""
    _open_what_stays_open()
    before = held()
    yield
    assert held() == before


@contextmanager
def no_new_descriptor_or_thread() -> Iterator[None]:
    """Every descriptor and thread of the end was there at the beginning; those of earlier tests may go meanwhile."""

    def open_now() -> tuple[set[str], set[str]]:
        return set(os.listdir("/proc/self/fd")), set(os.listdir("/proc/self/task"))

    descriptors, threads = open_now()
    yield

    def nothing_is_new() -> bool:
        now = open_now()
        return now[0] <= descriptors and now[1] <= threads

    eventually(nothing_is_new, "a descriptor or a thread stays behind")
