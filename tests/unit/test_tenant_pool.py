"""Many models, one physical limit: registration, memory by name, pressure, and exact sums."""

import ctypes
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tensormem import errors
from tensormem.pools import PhysicalLimit, PoolBlock, TenantPool

PAGE = 2 << 20


@pytest.fixture
def models() -> Iterator[TenantPool]:
    with TenantPool(8 * PAGE) as pool:
        yield pool


class Cache:
    """Blocks of a page of one tenant, the oldest given back when asked."""

    def __init__(self, models: TenantPool, name: str, pages: int, **terms: Any) -> None:
        self.models, self.name = models, name
        self.blocks: list[PoolBlock] = []
        self.asks: list[int] = []
        self.tenant = models.register(name, "1GiB", on_pressure=self.give, **terms)
        self.blocks += [models.allocate(name, PAGE) for _ in range(pages)]

    def give(self, wanted: int) -> None:
        self.asks.append(wanted)
        while wanted > 0 and self.blocks:
            wanted -= self.blocks[0].size
            self.models.deallocate(self.name, self.blocks.pop(0))


def test_a_tenant_has_many_live_allocations_that_hold_bytes(models: TenantPool) -> None:
    llama = models.register("llama", "1GiB")
    blocks = [models.allocate("llama", 100_000) for _ in range(20)]
    for number, block in enumerate(blocks):
        ctypes.memset(block.address, number, block.size)
    assert all(ctypes.string_at(block.address, 3) == bytes([n]) * 3 for n, block in enumerate(blocks))
    assert llama.stats().live_blocks == 20
    address = models.allocate_at("llama", 512 * PAGE - PAGE, PAGE)
    assert address == llama.pool.base_address + 511 * PAGE
    for block in blocks:
        models.deallocate("llama", block)
    models.deallocate("llama", 511 * PAGE, PAGE)
    assert llama.trim() == 2 * PAGE
    assert models.physical_memory_usage == 0


def test_names_are_checked(models: TenantPool) -> None:
    models.register("a", "1GiB")
    with pytest.raises(errors.TenantAlreadyExists) as exists:
        models.register("a", "2GiB")
    assert exists.value.name == "a"
    for call in (
        lambda: models.allocate("b", PAGE),
        lambda: models.deallocate("b", 0, PAGE),
        lambda: models.unregister("b"),
        lambda: models["b"],
    ):
        with pytest.raises(errors.TenantNotFound) as missing:
            call()
        assert missing.value.name == "b"
    assert (list(models), len(models), "a" in models, "b" in models) == (["a"], 1, True, False)


@pytest.mark.parametrize(
    ("capacity", "terms"),
    [
        (0, {}),
        (-1, {}),
        ("1GiB", {"guaranteed": "1TiB"}),
        ("1GiB", {"guaranteed": 10, "maximum": 5}),
        ("1GiB", {"priority": 0}),
        ("1GiB", {"on_pressure": 7}),
    ],
)
def test_a_registration_that_is_refused_leaves_nothing(
    models: TenantPool, capacity: int | str, terms: dict[str, Any]
) -> None:
    with pytest.raises(errors.TensormemError):
        models.register("a", capacity, **terms)
    assert (len(models), models.stats().guaranteed) == (0, 0)
    models.register("a", "1GiB", guaranteed=8 * PAGE)


def test_a_tenant_with_live_blocks_is_unregistered_by_force_only(models: TenantPool) -> None:
    tenant = models.register("a", "1GiB", guaranteed=PAGE)
    block = models.allocate("a", 3 * PAGE)
    with pytest.raises(errors.TenantInUse) as raised:
        models.unregister("a")
    assert (raised.value.name, raised.value.nbytes) == ("a", 3 * PAGE)
    assert models["a"] is tenant and block.live
    models.unregister("a", force=True)
    assert (models.physical_memory_usage, models.stats().guaranteed, tenant.closed) == (0, 0, True)
    with pytest.raises(errors.UseAfterRelease):
        tenant.allocate(PAGE)
    models.register("a", "1GiB", guaranteed=8 * PAGE)


def test_a_view_keeps_a_tenant_from_being_unregistered(models: TenantPool) -> None:
    models.register("a", "1GiB")
    view = memoryview(models.allocate("a", PAGE))
    with pytest.raises(errors.StillHeld):
        models.unregister("a", force=True)
    assert "a" in models
    view.release()
    models.unregister("a", force=True)
    assert models.physical_memory_usage == 0


def test_the_idle_pages_of_others_are_taken_before_anybody_is_asked(models: TenantPool) -> None:
    cache = Cache(models, "idle", 6, priority=9)
    while cache.blocks:
        models.deallocate("idle", cache.blocks.pop())
    assert models.physical_memory_usage == 6 * PAGE  # kept for reuse
    models.register("busy", "1GiB")
    block = models.allocate("busy", 7 * PAGE)
    assert (cache.asks, models.physical_memory_usage, block.size) == ([], 8 * PAGE, 7 * PAGE)


def test_who_is_above_its_share_is_asked_and_really_gives_pages(models: TenantPool) -> None:
    chat = Cache(models, "chat", 8)
    models.register("code", "1GiB", priority=3)
    block = models.allocate("code", 4 * PAGE)
    assert (chat.asks, len(chat.blocks), block.live) == ([4 * PAGE], 4, True)
    assert models.stats().tenants["chat"].times_asked == 1
    assert models.physical_memory_usage == 8 * PAGE


def test_a_guarantee_is_kept_whatever_the_others_do(models: TenantPool) -> None:
    models.register("safe", "1GiB", guaranteed=3 * PAGE)
    models.register("greedy", "1GiB")
    models.allocate_at("greedy", 0, 5 * PAGE)
    with pytest.raises(errors.OutOfPhysicalMemory) as raised:
        models.allocate_at("greedy", 5 * PAGE, PAGE)
    assert (raised.value.requested, raised.value.available) == (PAGE, 0)
    models.allocate_at("safe", 0, 3 * PAGE)
    assert models.physical_memory_usage == 8 * PAGE


def test_an_allocation_that_finds_no_room_changes_nothing(models: TenantPool) -> None:
    tenant = models.register("a", "1GiB", maximum=3 * PAGE)
    models.allocate_at("a", 0, 2 * PAGE)
    before = tenant.stats()
    with pytest.raises(errors.OutOfPhysicalMemory):
        models.allocate_at("a", 10 * PAGE, 2 * PAGE)
    assert tenant.stats() == before._replace(refusals=1)


def test_a_lowered_limit_makes_tenants_give_back(models: TenantPool) -> None:
    cache = Cache(models, "a", 7)
    models.physical_limit = 3 * PAGE
    assert (cache.asks, len(cache.blocks), models.physical_memory_usage) == ([4 * PAGE], 3, 3 * PAGE)
    assert models.stats().physical_limit == models.physical_limit == 3 * PAGE
    models.physical_limit = "32MiB"
    models.allocate("a", 10 * PAGE)


def test_a_callback_that_raises_half_way_is_reported_and_what_it_freed_is_used(
    models: TenantPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: heard.append(args.exc_value))
    blocks: list[PoolBlock] = []

    def half(wanted: int) -> None:
        for _ in range(wanted // PAGE):
            models.deallocate("a", blocks.pop())
        raise RuntimeError("tripped")

    models.register("a", "1GiB", on_pressure=half)
    blocks += [models.allocate("a", PAGE) for _ in range(8)]
    models.register("b", "1GiB")
    assert models.allocate("b", 2 * PAGE).live
    assert [str(error) for error in heard] == ["tripped"]


def test_a_callback_may_allocate_and_register_but_not_unregister(models: TenantPool) -> None:
    cache: Cache
    refused: list[Exception] = []

    def give(wanted: int) -> None:
        models.register(f"made by {wanted}", "1GiB")
        try:
            models.unregister("asking")
        except errors.InvalidArgument as error:
            refused.append(error)
        cache.give(wanted + PAGE)
        cache.blocks.append(models.allocate("full", PAGE))

    cache = Cache(models, "full", 8)
    models.unregister("full", force=True)
    cache.blocks.clear()
    models.register("full", "1GiB", on_pressure=give)
    cache.blocks += [models.allocate("full", PAGE) for _ in range(8)]
    models.register("asking", "1GiB")
    assert models.allocate("asking", PAGE).live
    assert (len(refused), len(cache.blocks), f"made by {PAGE}" in models) == (1, 7, True)


def test_sums_are_exact_while_tenants_come_and_go_in_threads() -> None:
    failures: list[BaseException] = []
    with TenantPool(24 * PAGE) as models:

        def serve(number: int) -> None:
            try:
                lock = threading.RLock()
                blocks: list[PoolBlock] = []

                def give(wanted: int) -> None:
                    with lock:
                        while wanted > 0 and blocks:
                            wanted -= blocks[0].size
                            models.deallocate(f"model {number}", blocks.pop(0))

                for _ in range(5):
                    tenant = models.register(
                        f"model {number}", "1GiB", guaranteed=number * PAGE, priority=1 + number, on_pressure=give
                    )
                    for i in range(40):
                        try:
                            block = tenant.allocate((1 + (i + number) % 4) * PAGE)
                        except errors.OutOfPhysicalMemory:
                            continue
                        with lock:
                            blocks.append(block)
                        assert models.physical_memory_usage <= 24 * PAGE
                    models.unregister(tenant.name, force=True)
                    with lock:
                        blocks.clear()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        stats = models.stats()
        assert (stats.physical_usage, stats.guaranteed, stats.tenants) == (0, 0, {})


def test_a_closed_pool_takes_no_tenants() -> None:
    with TenantPool("16MiB") as models:
        tenant = models.register("a", "1GiB")
        block = models.allocate("a", PAGE)
    assert models.closed and tenant.closed and not len(models) and block is not None
    models.close()
    with pytest.raises(errors.UseAfterRelease):
        models.register("b", "1GiB")
    with pytest.raises(errors.UseAfterRelease):
        models.__enter__()


def test_pictures_say_what_things_are(models: TenantPool) -> None:
    tenant = models.register("a", "1GiB")
    assert repr(models) == "<TenantPool of 1 tenants: 0 B of 16 MiB>"
    assert repr(tenant).startswith("<Tenant 'a': <VirtualMemoryPool of 1 GiB on host")
    models.unregister("a")
    assert repr(tenant) == "<Tenant 'a', unregistered>"


def test_tenants_under_a_larger_budget_count_in_both(models: TenantPool) -> None:
    limit = PhysicalLimit(6 * PAGE)
    with TenantPool(8 * PAGE, budget=limit) as mine, TenantPool(budget=limit) as other:
        assert other.physical_limit == 6 * PAGE
        cache = Cache(mine, "a", 4)
        theirs = Cache(other, "b", 2)
        assert (limit.used, mine.physical_memory_usage, other.physical_memory_usage) == (6 * PAGE, 4 * PAGE, 2 * PAGE)
        with pytest.raises(errors.OutOfPhysicalMemory) as refusal:
            cache.tenant.allocate(PAGE)
        assert (refusal.value.requested, refusal.value.available) == (PAGE, 0)
        assert mine.physical_memory_usage == 4 * PAGE and mine["a"].budget.used == 4 * PAGE
        # The room of its own limit asks nobody; what somebody else needs is asked for by hand.
        assert cache.asks == [] and theirs.asks == []
        assert mine.relieve(2 * PAGE) == 2 * PAGE
        mine.trim()
        assert (limit.used, cache.asks) == (4 * PAGE, [2 * PAGE])
        theirs.tenant.allocate(PAGE)
    assert limit.used == 0


def test_relief_stops_at_guarantees(models: TenantPool) -> None:
    cache = Cache(models, "a", 4, guaranteed=3 * PAGE)
    assert models.relieve(64 * PAGE) == PAGE
    assert len(cache.blocks) == 3 and cache.asks == [PAGE]
    assert models.relieve(0) == 0


def test_a_pool_of_tenants_needs_a_limit_from_somewhere() -> None:
    with pytest.raises(errors.InvalidArgument, match="physical limit"):
        TenantPool()


def test_a_pool_whose_tenant_refuses_to_close_stays_open_and_closes_later() -> None:
    models = TenantPool(8 * PAGE)
    used, idle = models.register("used", "64MiB"), models.register("idle", "64MiB")
    idle.allocate(PAGE)
    view = memoryview(used.allocate(PAGE))
    with pytest.raises(errors.StillHeld):
        models.close()
    assert not models.closed and list(models) == ["used"] and idle.closed
    models.register("later", "64MiB")
    view.release()
    models.close()
    models.close()
    assert models.closed and models.physical_memory_usage == 0 and len(models) == 0


def test_a_tenant_whose_pool_was_closed_by_hand_can_be_unregistered() -> None:
    with TenantPool(8 * PAGE) as models:
        tenant = models.register("chat", "64MiB")
        tenant.allocate(PAGE)
        tenant.pool.close()
        models.unregister("chat")
        assert "chat" not in models
