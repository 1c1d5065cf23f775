"""A shared budget within one process: bad files, bad terms, and what everybody sees."""

import gc
import os
import pickle
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensormem import errors
from tensormem.pools import PhysicalLimit, SharedBudget


@pytest.fixture
def budget() -> Iterator[SharedBudget]:
    with SharedBudget.create("1KiB", name="first") as made:
        yield made


def sealed_copy(budget: SharedBudget, content: bytes, size: int) -> int:
    import fcntl

    fd = os.memfd_create("copy", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.pwrite(fd, content, 0)
    os.truncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return fd


def test_participants_see_one_another(budget: SharedBudget) -> None:
    with SharedBudget.attach(budget, name="zweite ä", guaranteed=100, maximum=500, priority=7) as second:
        second.claim(200)
        assert budget.participants() == second.participants()
        first, other = budget.participants()
        assert (first.name, first.maximum, first.used, first.pid) == ("first", None, 0, os.getpid())
        assert (other.name, other.guaranteed, other.maximum, other.priority) == ("zweite ä", 100, 500, 7)
        assert (other.used, other.peak, budget.used_by_all, budget.used) == (200, 200, 200, 0)
        assert (second.guaranteed, second.maximum, second.priority, second.limit) == (100, 500, 7, 1024)
        second.give_back(200)


def test_it_is_a_file_for_its_owner_alone_that_cannot_change_its_size(budget: SharedBudget) -> None:
    assert os.fstat(budget.fd).st_mode & 0o777 == 0o600
    for size in (0, 2**20):
        with pytest.raises(PermissionError):
            os.truncate(budget.fd, size)
    assert not os.get_inheritable(budget.fd)


@pytest.mark.parametrize("fd", [-1, 10**6, 2**40, "stdin", None, 1.5])
def test_what_is_no_open_descriptor_is_refused(fd: Any) -> None:
    with pytest.raises(errors.InvalidArgument):
        SharedBudget.attach(fd)


def test_files_of_another_kind_are_refused_and_stay_open(tmp_path: Path) -> None:
    ends = os.pipe()
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    for fd in (*ends, file):
        with pytest.raises(errors.InvalidArgument):
            SharedBudget.attach(fd)
        os.close(fd)


def test_forged_and_torn_files_are_refused(budget: SharedBudget) -> None:
    size = os.fstat(budget.fd).st_size
    good = os.pread(budget.fd, size, 0)
    forgeries = [
        (b"", size),
        (b"\0" * 8 + good[8:], size),
        (good[:8] + b"\1\0\0\0" + good[12:], size),
        (good[:12] + b"\377" * 4 + good[16:], size),
        (good[:4096], 4096),
        (good, size + 1),
        (good, size - 1),
    ]
    for content, length in forgeries:
        fd = sealed_copy(budget, content[:length], length)
        with pytest.raises(errors.InvalidArgument):
            SharedBudget.attach(fd)
        os.close(fd)
    open_ended = os.memfd_create("copy", os.MFD_ALLOW_SEALING)
    os.pwrite(open_ended, good, 0)
    with pytest.raises(errors.InvalidArgument, match="sealed"):
        SharedBudget.attach(open_ended)
    os.close(open_ended)


def test_a_copy_that_holds_participants_nobody_is_behind_is_cleaned_up(budget: SharedBudget) -> None:
    budget.claim(600)
    size = os.fstat(budget.fd).st_size
    fd = sealed_copy(budget, os.pread(budget.fd, size, 0), size)
    with SharedBudget.attach(fd, name="only one") as alone:
        assert [each.name for each in alone.participants()] == ["only one"]
        alone.claim(1024)
        alone.give_back(1024)
    os.close(fd)
    budget.give_back(600)


@pytest.mark.parametrize(
    "terms",
    [
        {"guaranteed": -1},
        {"guaranteed": 20, "maximum": 10},
        {"priority": 0},
        {"priority": "high"},
        {"patience": -1},
        {"patience": float("nan")},
        {"patience": "long"},
        {"on_pressure": 3},
        {"name": "n" * 65},
        {"name": "a\0b"},
        {"name": 7},
    ],
)
def test_terms_that_make_no_sense_are_refused_and_take_no_place(budget: SharedBudget, terms: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        SharedBudget.attach(budget.fd, **terms)
    assert len(budget.participants()) == 1


def test_guarantees_that_cannot_be_kept_are_refused(budget: SharedBudget) -> None:
    with SharedBudget.attach(budget.fd, guaranteed=1000):
        with pytest.raises(errors.OutOfPhysicalMemory) as raised:
            SharedBudget.attach(budget.fd, guaranteed=25)
        assert (raised.value.requested, raised.value.available) == (25, 24)
        with pytest.raises(errors.OutOfPhysicalMemory):
            budget.limit = 999
        budget.limit = 1000
        with pytest.raises(errors.OutOfPhysicalMemory):
            budget.claim(1)


def test_who_still_uses_something_cannot_leave(budget: SharedBudget) -> None:
    budget.claim(10)
    with pytest.raises(errors.TenantInUse) as raised:
        budget.close()
    assert (raised.value.name, raised.value.nbytes, budget.closed) == ("first", 10, False)
    budget.give_back(10)
    budget.close()
    budget.close()
    assert budget.closed
    with pytest.raises(errors.UseAfterRelease):
        budget.claim(1)


def test_one_that_is_dropped_leaves_and_a_callback_that_refers_to_it_leaks_nothing(budget: SharedBudget) -> None:
    def make() -> weakref.ref[SharedBudget]:
        holder: list[SharedBudget] = []
        holder.append(SharedBudget.attach(budget.fd, on_pressure=lambda wanted: holder[0].give_back(wanted)))
        holder[0].claim(1000)
        budget.claim(100)
        return weakref.ref(holder[0])

    gone = make()
    while gone() is not None:  # the thread that was asked may still be on its way out of the callback
        gc.collect()
    while len(budget.participants()) > 1:
        pass
    assert budget.used_by_all == 100
    budget.give_back(100)


def test_plain_pickle_is_refused(budget: SharedBudget) -> None:
    with pytest.raises(TypeError, match="multiprocessing"):
        pickle.dumps(budget)


def test_it_is_made_by_create_and_attach_alone() -> None:
    with pytest.raises(TypeError, match="create"):
        SharedBudget()
    assert not isinstance(PhysicalLimit(1), SharedBudget)


def test_its_picture_says_what_it_is(budget: SharedBudget) -> None:
    budget.claim(512)
    assert repr(budget) == "<SharedBudget 'first': 512 B here, 512 B of 1 KiB in all>"
    budget.give_back(512)
    budget.close()
    assert repr(budget) == "<SharedBudget 'first', closed>"
