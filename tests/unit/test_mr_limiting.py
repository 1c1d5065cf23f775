"""LimitingResourceAdaptor: a budget that is exact, can change, and can be promised."""

import gc
import threading

import pytest

from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing.resources import Gate


def budget(limit: int | str = 1000) -> mr.LimitingResourceAdaptor:
    return mr.LimitingResourceAdaptor(mr.HostMemoryResource(), limit)


def test_the_last_byte_can_be_had_and_the_next_cannot() -> None:
    limited = budget(1000)
    block = limited.allocate(999)
    last = limited.allocate(1)
    with pytest.raises(errors.OutOfBudget) as caught:
        limited.allocate(1)
    assert caught.value.args == (1, 1000, 0, 1000)
    assert (limited.allocated_bytes, limited.remaining) == (1000, 0)
    limited.deallocate(block)
    assert (limited.bytes_outstanding, limited.remaining, last.state) == (1, 999, "live")


def test_more_than_the_limit_at_once_does_not_touch_the_upstream() -> None:
    watched = mr.StatisticsResourceAdaptor(mr.HostMemoryResource())
    limited = mr.LimitingResourceAdaptor(watched, 1000)
    with pytest.raises(errors.OutOfBudget) as caught:
        limited.allocate(1001)
    facts = caught.value
    assert (facts.requested, facts.current, facts.remaining, facts.limit) == (1001, 0, 1000, 1000)
    assert watched.allocation_counts.total_count == 0


def test_an_upstream_that_refuses_is_not_charged() -> None:
    limited = mr.LimitingResourceAdaptor(mr.FaultInjectionResourceAdaptor(mr.HostMemoryResource()), 1000)
    with pytest.raises(errors.OutOfMemory):
        limited.allocate(100)
    assert (limited.bytes_outstanding, limited.remaining) == (0, 1000)


def test_a_limit_lowered_below_use_refuses_until_enough_has_come_back() -> None:
    limited = budget(1000)
    first, second = limited.allocate(600), limited.allocate(300)
    limited.allocation_limit = 500
    assert (limited.allocation_limit, limited.remaining) == (500, 0)
    with pytest.raises(errors.OutOfBudget) as caught:
        limited.allocate(1)
    assert caught.value.args == (1, 900, 0, 500)
    limited.deallocate(first)
    assert limited.remaining == 200
    third = limited.allocate(200)
    with pytest.raises(errors.OutOfBudget):
        limited.allocate(1)
    assert {second.state, third.state} == {"live"}


def test_a_limit_of_nothing_refuses_everything_and_can_be_raised() -> None:
    limited = budget(0)
    with pytest.raises(errors.OutOfBudget):
        limited.allocate(1)
    limited.allocation_limit = "1KiB"
    assert limited.allocate(1024).state == "live"


@pytest.mark.parametrize("limit", [-1, "12 potatoes", 2**64])
def test_a_bad_limit_is_refused_and_the_old_one_stays(limit: int | str) -> None:
    limited = budget(1000)
    with pytest.raises(errors.InvalidSize):
        limited.allocation_limit = limit
    with pytest.raises(errors.InvalidSize):
        budget(limit)
    assert limited.allocation_limit == 1000


def test_what_waits_for_a_stream_stays_charged_and_is_reaped_when_room_is_needed() -> None:
    limited, gate = budget(1000), Gate()
    with Stream(host()) as stream:
        gate.hold(stream)
        waiting = limited.allocate(800, stream)
        limited.deallocate(waiting, stream)
        assert (waiting.state, limited.bytes_outstanding) == ("retired", 800)
        with pytest.raises(errors.OutOfBudget) as caught:
            limited.allocate(800)
        assert (caught.value.current, caught.value.remaining) == (800, 200)
        gate.open()
        stream.synchronize()
        assert limited.bytes_outstanding == 800  # nobody has looked yet
        heir = limited.allocate(800)
        assert (waiting.state, heir.state, limited.bytes_outstanding) == ("freed", "live", 800)


def test_reaping_gives_the_budget_back() -> None:
    limited, gate = budget(1000), Gate()
    with Stream(host()) as stream:
        gate.hold(stream)
        limited.deallocate(limited.allocate(800, stream), stream)
        limited.reap_pending()
        assert limited.remaining == 200
        gate.open()
        stream.synchronize()
        limited.reap_pending()
    assert (limited.bytes_outstanding, limited.remaining) == (0, 1000)


# --- Promises ---


def test_a_reservation_keeps_room_for_itself() -> None:
    limited = budget(1000)
    with limited.reserve(600) as reservation:
        assert (limited.reserved_bytes, limited.remaining, limited.bytes_outstanding) == (600, 400, 0)
        with pytest.raises(errors.OutOfBudget):
            limited.allocate(401)
        inside, outside = reservation.allocate(500), limited.allocate(400)
        assert (reservation.remaining, limited.reserved_bytes) == (100, 100)
        assert (limited.bytes_outstanding, limited.remaining) == (900, 0)
    assert (limited.reserved_bytes, limited.remaining) == (0, 100)
    limited.deallocate(inside)
    limited.deallocate(outside)
    assert (limited.bytes_outstanding, limited.remaining) == (0, 1000)


def test_a_reservation_gives_no_more_than_it_has() -> None:
    limited = budget(1000)
    reservation = limited.reserve(100)
    with pytest.raises(errors.OutOfBudget) as caught:
        reservation.allocate(101)
    assert (caught.value.requested, caught.value.remaining) == (101, 100)
    assert (reservation.remaining, limited.reserved_bytes) == (100, 100)


def test_a_reservation_must_fit() -> None:
    limited = budget(1000)
    keep = limited.allocate(500)
    with pytest.raises(errors.OutOfBudget) as caught:
        limited.reserve(501)
    assert caught.value.args == (501, 500, 500, 1000)
    with pytest.raises(errors.InvalidSize):
        limited.reserve(0)
    assert (limited.reserved_bytes, limited.remaining, keep.state) == (0, 500, "live")


def test_closing_a_reservation_twice_is_closing_it_once() -> None:
    limited = budget(1000)
    reservation = limited.reserve(300)
    reservation.close()
    reservation.close()
    assert (reservation.remaining, limited.remaining) == (0, 1000)
    with pytest.raises(errors.OutOfBudget):
        reservation.allocate(1)


def test_a_dropped_reservation_gives_its_room_back() -> None:
    limited = budget(1000)
    reservation = limited.reserve(300)
    assert limited.remaining == 700
    del reservation
    gc.collect()
    assert limited.remaining == 1000


def test_an_allocation_that_fails_stays_promised() -> None:
    limited = mr.LimitingResourceAdaptor(mr.FaultInjectionResourceAdaptor(mr.HostMemoryResource(), nth=1), 1000)
    with limited.reserve(600) as reservation:
        with pytest.raises(errors.OutOfMemory):
            reservation.allocate(100)
        assert (reservation.remaining, limited.reserved_bytes) == (600, 600)
        for nonsense in (0, -1, "12 potatoes"):
            with pytest.raises(errors.InvalidSize):
                reservation.allocate(nonsense)
        with pytest.raises(errors.InvalidAlignment):
            reservation.allocate(100, alignment=3)
        assert (reservation.remaining, limited.reserved_bytes) == (600, 600)
        assert reservation.allocate(600).nbytes == 600
    assert (limited.reserved_bytes, limited.remaining) == (0, 1000)


def test_blocks_of_a_reservation_outlive_it_and_its_resource() -> None:
    reservation = budget(1000).reserve(500)
    block = reservation.allocate(100, tag="kept")
    del reservation
    gc.collect()
    assert (block.state, block.tag, block.mr.bytes_outstanding) == ("live", "kept", 100)


def test_reservations_are_made_by_budgets_only() -> None:
    with pytest.raises(TypeError, match="reserve"):
        mr.BudgetReservation()


# --- Threads ---


def test_the_budget_is_exact_under_threads() -> None:
    limit, threads, each = 100_000, 8, 200
    limited = budget(limit)
    start = threading.Barrier(threads)
    overdrawn: list[int] = []
    granted: list[int] = []

    def churn(seed: int) -> None:
        held: list[mr.DeviceBlock] = []
        start.wait()
        for step in range(each):
            try:
                held.append(limited.allocate(1 + (seed * 7919 + step * 104_729) % 9000))
            except errors.OutOfBudget as refusal:
                if refusal.current > limit:
                    overdrawn.append(refusal.current)
                while held:
                    limited.deallocate(held.pop())
        granted.append(len(held))
        while held:
            limited.deallocate(held.pop())

    workers = [threading.Thread(target=churn, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(granted) == threads
    assert overdrawn == []
    assert (limited.bytes_outstanding, limited.remaining) == (0, limit)


def test_promises_are_exact_under_threads() -> None:
    limited = budget(8 * 1000)
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def promise() -> None:
        try:
            start.wait()
            for _ in range(50):
                with limited.reserve(1000) as reservation:
                    limited.deallocate(reservation.allocate(700))
                    limited.deallocate(reservation.allocate(300))
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=promise) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert (limited.bytes_outstanding, limited.reserved_bytes, limited.remaining) == (0, 0, 8000)
