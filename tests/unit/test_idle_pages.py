"""Pages that nobody uses go to whoever needs them under one limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tensormem as tm
from tensormem import errors
from tensormem.pools import BlockCache, PhysicalLimit, SharedBudget, TenantPool, VirtualMemoryPool

PAGE = 2 << 20


class Maker:
    """A maker of any kind that takes pages and gives them back, whereupon they are idle."""

    def __init__(self, take: Callable[[int], Any], free: Callable[[Any], object], name: str) -> None:
        self.take, self.free, self.name = take, free, name


def pool(budget: tm._core.Budget) -> Maker:
    made = VirtualMemoryPool("1GiB", budget=budget)
    return Maker(lambda pages: made.allocate(size=pages * PAGE), lambda block: made.deallocate(block), "pool")


def suspended(budget: tm._core.Budget) -> Maker:
    made = VirtualMemoryPool("1GiB", budget=budget)
    return Maker(
        lambda pages: made.allocate(size=pages * PAGE, tag="idle pages"),
        lambda block: made.suspend("idle pages", "drop"),
        "suspended",
    )


def cache(budget: tm._core.Budget) -> Maker:
    made = BlockCache("1GiB", PAGE, budget=budget)
    return Maker(lambda pages: made.allocate(pages), lambda ids: made.deallocate(ids), "cache")


def elastic(budget: tm._core.Budget) -> Maker:
    made = tm.mr.ElasticMemoryResource(budget=budget)
    return Maker(lambda pages: made.allocate(pages * PAGE), lambda block: made.deallocate(block), "elastic")


KINDS = (pool, suspended, cache, elastic)


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_idle_pages_of_one_maker_are_had_by_another(
    first: Callable[[PhysicalLimit], Maker], second: Callable[[PhysicalLimit], Maker]
) -> None:
    limit = PhysicalLimit(8 * PAGE)
    keeper, needy = first(limit), second(limit)
    kept = keeper.take(8)
    with pytest.raises(MemoryError):
        needy.take(1)
    keeper.free(kept)
    assert limit.used == 8 * PAGE
    taken = needy.take(6)
    assert limit.used == 8 * PAGE
    needy.free(taken)


def test_a_tenant_gets_the_idle_pages_of_a_pool_beside_the_tenants() -> None:
    limit = PhysicalLimit(8 * PAGE)
    with VirtualMemoryPool("1GiB", budget=limit) as beside, TenantPool(8 * PAGE, budget=limit) as models:
        beside.deallocate(beside.allocate(size=8 * PAGE))
        chat = models.register("chat", "1GiB")
        block = chat.allocate(8 * PAGE)
        chat.deallocate(block)
        assert beside.allocate(size=8 * PAGE).size == 8 * PAGE


def test_a_participant_of_a_shared_budget_gets_the_idle_pages_of_its_own_process() -> None:
    with SharedBudget.create(8 * PAGE, name="one") as budget:
        keeper, needy = pool(budget), elastic(budget)
        keeper.free(keeper.take(8))
        assert needy.take(8) is not None
        del needy, keeper


def test_a_refusal_says_what_is_left_when_nothing_more_is_idle() -> None:
    limit = PhysicalLimit(8 * PAGE)
    keeper, needy = pool(limit), pool(limit)
    used = keeper.take(3)
    keeper.free(keeper.take(4))
    with pytest.raises(errors.OutOfPhysicalMemory) as raised:
        needy.take(6)
    assert (raised.value.requested, raised.value.available) == (6 * PAGE, 5 * PAGE)
    keeper.free(used)
