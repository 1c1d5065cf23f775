"""Owns: the attack by limits of the system: address space, descriptors, the size of files, locked memory, the number of
mappings and a full disk, each with a little room left. A call works or says what is short; with the limit lifted,
everything works again and nothing was lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import mmap
import os
import resource
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import tensormem as tm
from attacks import arguments
from attacks.hostile_values import close_descriptors
from attacks.live_objects import MAKERS, new_path
from attacks.outcome import Leak, Outcome, Wrong
from attacks.suite import Note, Suite
from support.holdings import held
from tensormem import errors, mr, pools

__all__ = ["SUITE"]


@contextlib.contextmanager
def _limited(which: int, value: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


def _address_space(draw: Random) -> contextlib.AbstractContextManager[None]:
    now = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    return _limited(resource.RLIMIT_AS, now + draw.choice([2**20, 4 * 2**20, 16 * 2**20, 64 * 2**20]))


def _descriptors(draw: Random) -> contextlib.AbstractContextManager[None]:
    highest = max(map(int, os.listdir("/proc/self/fd")))
    return _limited(resource.RLIMIT_NOFILE, highest + draw.choice([0, 1, 2, 3, 5]))


def _file_size(draw: Random) -> contextlib.AbstractContextManager[None]:
    return _limited(resource.RLIMIT_FSIZE, draw.choice([0, 1, 64, 4096, 2**20]))


def _locked(draw: Random) -> contextlib.AbstractContextManager[None]:
    return _limited(resource.RLIMIT_MEMLOCK, draw.choice([0, 4096, 65536]))


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


@contextlib.contextmanager
def _mappings(draw: Random) -> Iterator[None]:
    """All mappings but a few are taken: every other page of a region has another protection."""
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    now = Path("/proc/self/maps").read_text().count("\n")
    left = draw.choice([2, 6, 20, 60, 600])
    pages = most - now - left
    page, libc = mmap.PAGESIZE, _libc()
    base = libc.mmap(None, pages * page, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    try:
        for number in range(1, pages, 2):
            libc.mprotect(base + number * page, page, 0)
        yield
    finally:
        libc.munmap(base, pages * page)


@functools.cache
def _small_disk() -> Path | None:
    place = Path(tempfile.mkdtemp(prefix="small-", dir="/tmp"))
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True)
    return place if done.returncode == 0 else None


def _why_no_small_disk() -> str | None:
    return None if os.geteuid() == 0 else "only root can mount a small disk"


@contextlib.contextmanager
def _full_disk(draw: Random) -> Iterator[None]:
    place = _small_disk()
    if place is None:
        yield
        return
    home = Path.cwd()
    os.chdir(place)
    try:
        with contextlib.suppress(OSError), open("filler", "wb", buffering=0) as filler:
            filler.write(bytes(draw.choice([0, 32 * 1024, 60 * 1024, 128 * 1024])))
        yield
    finally:
        os.chdir(home)
        for path in place.iterdir():
            path.unlink(missing_ok=True)


def _use(draw: Random) -> None:
    step = draw.choice(_STEPS)
    if step is not None:
        step()
        return
    made = MAKERS[draw.choice(list(MAKERS))]()
    repr(made)
    if draw.random() < 0.5:
        getattr(made, "close", lambda: None)()


def _record() -> None:
    leaf = mr.HostMemoryResource()
    with tm.trace(new_path(".tmt"), flush_interval=0.001, stacks=True):
        for _ in range(2000):
            leaf.deallocate(leaf.allocate(64))


def _log() -> None:
    made = mr.LoggingResourceAdaptor(mr.HostMemoryResource(), new_path(".csv"))
    for _ in range(2000):
        made.deallocate(made.allocate(64))


def _pages() -> None:
    with pools.VirtualMemoryPool("64MiB", "64KiB") as pool:
        blocks = [pool.allocate(size="64KiB") for _ in range(64)]
        for block in blocks[::2]:
            pool.deallocate(block)
        pool.compact()


def _big() -> None:
    with contextlib.ExitStack() as kept:
        for memory in ("mem", "shm"):
            kept.callback(tm.zeros(2**22, "uint8", memory=memory).close)


def _pinned() -> None:
    leaf = mr.PinnedMemoryResource()
    leaf.deallocate(leaf.allocate("1MiB"))


def _threads() -> None:
    made = [MAKERS["stream"]() for _ in range(4)]
    for stream in made:
        stream.launch(int)
        stream.close()


_STEPS: list[Callable[[], None] | None] = [_record, _log, _pages, _big, _pinned, _threads] + [None] * 14
_LIMITS: dict[str, Callable[[Random], contextlib.AbstractContextManager[None]]] = {
    "address space": _address_space,
    "descriptors": _descriptors,
    "file size": _file_size,
    "locked memory": _locked,
    "full disk": _full_disk,
    "mappings": _mappings,
}
# Taking all mappings takes a tenth of a second.
_WEIGHTS = [10, 10, 10, 5, 6, 1]


def _case(draw: Random, note: Note) -> Outcome:
    name = draw.choices(list(_LIMITS), _WEIGHTS)[0]
    note(name)
    outcome = Outcome.FINE
    seed = draw.random()
    with _LIMITS[name](draw):
        for number in range(20 if name == "mappings" else 2):
            try:
                _use(Random(f"{seed}{number}"))
            except TimeoutError:
                outcome = Outcome.WAITED
            except (errors.InternalError, SystemError, AssertionError):
                raise
            except Exception:
                outcome = Outcome.REFUSED
    close_descriptors()
    _check_all_works(name)
    return outcome


def _check_all_works(name: str) -> None:
    try:
        for step in (_pages, _threads, _pinned):
            step()
        if tm.full(4, 7, "uint8", memory="shm").tolist() != [7] * 4:
            raise Wrong("other bytes")
    except Exception as error:
        raise Wrong(f"after {name}: {error!r:.300}") from error


_before: dict[str, int] = {}


def _begin() -> None:
    arguments.begin()
    for step in _STEPS:
        if step is not None:
            step()
    for make in MAKERS.values():
        make()
    gc.collect()
    _before.update(held())


def _finish() -> None:
    gc.collect()
    after = held()
    grown = {name: count - _before[name] for name, count in after.items() if count > _before[name]}
    if _small_disk.cache_info().currsize and (place := _small_disk()) is not None:
        subprocess.run(["umount", place], check=False)
        place.rmdir()
    if grown:
        raise Leak(f"held after a batch: {grown}")


SUITE = Suite(
    "limits",
    "With the address space, descriptors, file sizes, locked memory, mappings or the disk nearly used up, a call works "
    "or says what is short. With the limit lifted everything works again.",
    _case,
    share=0.02,
    batch=40,
    prepare=arguments.prepare,
    begin=_begin,
    finish=_finish,
    why_not=_why_no_small_disk,
)
