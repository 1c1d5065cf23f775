"""Owns: the conformance suite that elastic pools pass on every device.

Joining it costs a line:

    class TestMyDevice(PoolConformance): device = "cuda:0"

Must not know: any particular device; bytes are read and written by the driver's own copies.
"""

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensormem import errors, trace
from tensormem.mr import limit, memory_stats, tag
from tensormem.pools import MemoryStats, PhysicalLimit, PoolBlock, VirtualMemoryPool
from tensormem.streams import Stream, default_stream
from tensormem.testing.applicability import Suite, needs
from tensormem.testing.child_process import end_of_process, forked_child
from tensormem.testing.faults import each_system_call_fails
from tensormem.testing.held_call import held_call
from tensormem.testing.resources import Gate

__all__ = ["PoolConformance"]

_PAGE = 2 << 20


class PoolConformance(Suite):
    """What every elastic pool promises. Subclass it, and name the device."""

    device: str = "host"
    on_the_host = True
    """Whether `device` is the host, whose system calls can be made to fail; found by itself."""

    def __init_subclass__(cls) -> None:
        cls.on_the_host = cls.device in ("host", "main", "cpu")
        super().__init_subclass__()

    @pytest.fixture
    def pool(self) -> Iterator[VirtualMemoryPool]:
        """A pool of 64 pages; its books are right at the end."""
        with VirtualMemoryPool(64 * _PAGE, _PAGE, self.device) as pool:
            yield pool
            pool.reap_pending()
            assert pool._is_valid()

    # --- What every maker of memory keeps ---

    def test_a_limit_in_force_counts_its_pages_and_gets_all_of_them_back(self) -> None:
        with limit(64 * _PAGE) as counted, VirtualMemoryPool(64 * _PAGE, _PAGE, self.device) as pool:
            pool.allocate(0, _PAGE)
            assert counted.used == pool.physical_memory_usage == _PAGE
        assert counted.used == 0

    def test_what_does_not_fit_is_refused_with_a_report_that_names_the_tag(self) -> None:
        with limit(_PAGE - 1), VirtualMemoryPool(64 * _PAGE, _PAGE, self.device) as pool:
            with tag("activations"), pytest.raises(errors.OutOfBudget) as caught:
                pool.allocate(size=_PAGE)
            report = caught.value.report()
            assert report.tag == "activations" and report.layers and report.hints
            assert pool.physical_memory_usage == 0

    def test_the_statistics_of_the_process_agree_with_the_limit_to_the_byte(self) -> None:
        before = memory_stats()["charged_bytes"]
        with limit() as counted, VirtualMemoryPool(64 * _PAGE, _PAGE, self.device) as pool:
            pool.allocate(0, 2 * _PAGE)
            assert memory_stats()["charged_bytes"] - before == counted.used == 2 * _PAGE
        assert memory_stats()["charged_bytes"] == before

    def test_a_tag_that_is_given_is_stronger_than_the_scope(self, pool: VirtualMemoryPool) -> None:
        with tag("around"):
            given, named = pool.allocate(size=_PAGE, tag="given"), pool.allocate(size=_PAGE)
        assert (given.tag, named.tag) == ("given", "around")

    def test_a_block_that_a_drivers_call_is_given_stays_where_it_is(self, pool: VirtualMemoryPool) -> None:
        block = pool.allocate(size=_PAGE, movable=True)
        with block.hold(), pytest.raises(BufferError):
            pool.deallocate(block)
        with pytest.raises(errors.TensormemError):
            pool.driver.fill(block, 0, 1, (0, 1, 1))
        pool.deallocate(block)  # a call that was refused holds nothing
        with pytest.raises(errors.TensormemError):
            pool.driver.fill(block, 0, 1, (_PAGE, 1, 1))

    def test_an_address_that_a_call_was_given_as_a_number_stays_where_it_is(self, pool: VirtualMemoryPool) -> None:
        block = pool.allocate(size=_PAGE, movable=True)
        with held_call(pool.driver, block.address + 100):
            with pytest.raises(BufferError):
                pool.deallocate(block)
            with pytest.raises(BufferError):
                pool.close()
        pool.deallocate(block)

    def test_freeing_does_not_wait_for_a_stream(self, pool: VirtualMemoryPool) -> None:
        gate = Gate()
        with Stream(pool.driver) as stream:
            gate.hold(stream)
            try:
                block = pool.allocate(size=_PAGE)
                pool.record_use(block, stream=stream)
                pool.deallocate(block, stream=stream)  # would wait for ever: nobody else opens the gate
                assert pool.stats().retired_bytes > 0
            finally:
                gate.open()

    def test_a_forked_child_can_use_it_or_is_told_and_the_parent_keeps_it(self, pool: VirtualMemoryPool) -> None:
        block = pool.allocate(size=_PAGE)

        def use() -> None:
            with VirtualMemoryPool(64 * _PAGE, _PAGE, self.device) as made:
                made.deallocate(made.allocate(size=_PAGE))
            pool.close()

        assert forked_child(use) in ("done", "told")
        write(pool, block, b"still here")
        assert read(pool, block, 10) == b"still here"

    @needs("on_the_host")
    def test_whichever_system_call_fails_nothing_is_lost(self) -> None:
        def scenario() -> None:
            with VirtualMemoryPool(64 * _PAGE, _PAGE, self.device) as pool:
                pool.deallocate(pool.allocate(size=3 * _PAGE))

        before, runs = memory_stats()["charged_bytes"], 0
        for raised in each_system_call_fails(scenario):
            assert raised is None or isinstance(raised, errors.TensormemError | OSError | MemoryError), raised
            del raised
            runs += 1
            gc.collect()
            assert memory_stats()["charged_bytes"] == before
        assert runs > 0, "a pool asks the system for its pages"

    @needs("on_the_host")
    def test_a_process_that_ends_with_it_open_ends_well(self) -> None:
        end_of_process(self, "_left_open")

    def _left_open(self) -> object:
        pool = VirtualMemoryPool(64 * _PAGE, _PAGE, self.device, low_water=_PAGE, background=True)
        stream = Stream(pool.driver)
        stream.launch(int)
        block = pool.allocate(size=_PAGE, tag="model")
        pool.allocate(40 * _PAGE, _PAGE, tag="asleep")
        pool.suspend("asleep")
        return pool, block, stream, pool.allocate(size=100)

    def test_closing_twice_is_harmless(self) -> None:
        pool = VirtualMemoryPool(64 * _PAGE, _PAGE, self.device)
        pool.allocate(0, _PAGE)
        pool.close()
        pool.close()
        assert pool.closed

    def test_a_trace_has_its_blocks_once_and_ends_them_when_it_closes(self, tmp_path: Path) -> None:
        with (
            trace(tmp_path / "run.tmt"),
            VirtualMemoryPool(64 * _PAGE, _PAGE, self.device) as pool,
            tag("crossing"),
        ):
            pool.allocate(size=1000)
        with trace.open(tmp_path / "run.tmt") as recorded:
            lives = [life for life in recorded.blocks() if life.tag == "crossing" and life.nbytes == 1000]
        assert len(lives) == 1 and lives[0].end_ns is not None

    # --- Places named by the caller ---

    def test_a_new_pool_has_no_memory(self, pool: VirtualMemoryPool) -> None:
        stats = pool.stats()
        assert (pool.capacity, pool.page_size, pool.physical_memory_usage) == (64 * _PAGE, _PAGE, 0)
        assert (stats.mapped_pages, stats.fragmentation, stats.address_fragmentation) == (0, 0.0, 0.0)
        assert not pool.is_mapped(0, pool.capacity)

    def test_the_capacity_rounds_up_to_a_page(self) -> None:
        with VirtualMemoryPool(_PAGE + 1, _PAGE, self.device) as pool:
            assert pool.capacity == 2 * _PAGE

    @pytest.mark.parametrize("page_size", [0, 1, 4096, 3 << 20, (2 << 20) + 1])
    def test_a_bad_page_size_is_refused_at_once(self, page_size: int) -> None:
        with pytest.raises(errors.InvalidPageSize) as caught:
            VirtualMemoryPool("1GiB", page_size, self.device)
        assert (caught.value.page_size, caught.value.minimum >= 65536) == (page_size, True)

    def test_a_range_takes_the_floor_and_the_ceiling_of_its_pages(self, pool: VirtualMemoryPool) -> None:
        assert pool.allocate(3 * _PAGE + 5, _PAGE) == pool.base_address + 3 * _PAGE + 5
        assert pool.stats().mapped_pages == 2
        assert pool.is_mapped(3 * _PAGE, 2 * _PAGE)
        assert pool.is_mapped(5 * _PAGE - 1, 1) and not pool.is_mapped(5 * _PAGE - 1, 2)
        assert not pool.is_mapped(3 * _PAGE - 1, 2)
        pool.deallocate(4 * _PAGE + 1, 1)  # the page it lies in
        assert pool.is_mapped(3 * _PAGE, _PAGE) and not pool.is_mapped(4 * _PAGE, 1)
        pool.deallocate(3 * _PAGE, _PAGE)
        assert pool.stats().live_bytes == 0

    def test_nothing_is_mapped_where_nothing_can_be(self, pool: VirtualMemoryPool) -> None:
        pool.allocate(0, pool.capacity)
        assert pool.is_mapped(0, pool.capacity) and pool.is_mapped(pool.capacity - 1, 1)
        assert not pool.is_mapped(0, 0)
        assert not pool.is_mapped(0, pool.capacity + 1)
        assert not pool.is_mapped(pool.capacity, 1)

    @pytest.mark.parametrize(
        ("offset", "size"), [(64 * _PAGE, 1), (0, 64 * _PAGE + 1), (63 * _PAGE, 2 * _PAGE), (2**62, 1), (1, 2**62)]
    )
    def test_a_range_outside_the_pool_is_refused(self, pool: VirtualMemoryPool, offset: int, size: int) -> None:
        for call in (pool.allocate, pool.deallocate):
            with pytest.raises(errors.InvalidOffset) as caught:
                call(offset, size)
            assert (caught.value.offset, caught.value.size, caught.value.capacity) == (offset, size, pool.capacity)
        assert pool.stats().mapped_pages == 0

    @pytest.mark.parametrize("size", [0, -1, "potato", 2**70])
    def test_a_bad_size_is_refused(self, pool: VirtualMemoryPool, size: int | str) -> None:
        for call in (
            lambda: pool.allocate(0, size),
            lambda: pool.allocate(size=size),
            lambda: pool.deallocate(0, size),
        ):
            with pytest.raises(errors.InvalidSize):
                call()
        assert pool.physical_memory_usage == 0

    @pytest.mark.parametrize("alignment", [3, 0, -1, 2 * _PAGE])
    def test_a_bad_alignment_is_refused(self, pool: VirtualMemoryPool, alignment: int) -> None:
        with pytest.raises(errors.InvalidAlignment):
            pool.allocate(size=1, alignment=alignment)

    def test_mapping_over_a_mapped_page_changes_nothing(self, pool: VirtualMemoryPool) -> None:
        pool.allocate(2 * _PAGE, _PAGE)
        before = pool.stats()
        with pytest.raises(errors.AlreadyMapped) as caught:
            pool.allocate(0, 5 * _PAGE)
        assert (caught.value.offset, caught.value.size) == (2 * _PAGE, _PAGE)
        assert pool.stats() == before

    def test_giving_back_what_is_not_mapped_changes_nothing(self, pool: VirtualMemoryPool) -> None:
        pool.allocate(0, 2 * _PAGE)
        pool.allocate(size=_PAGE, tag="block")  # a block is no range of the caller's
        before = pool.stats()
        with pytest.raises(errors.NotMapped) as caught:
            pool.deallocate(0, 4 * _PAGE)
        assert caught.value.offset == 2 * _PAGE
        assert pool.stats()[:9] == before[:9] and pool.is_mapped(0, 2 * _PAGE)

    def test_the_limit_is_refused_with_facts_and_nothing_changes(self) -> None:
        with VirtualMemoryPool(64 * _PAGE, _PAGE, self.device, physical_limit=3 * _PAGE) as pool:
            pool.allocate(0, 2 * _PAGE)
            before = pool.stats()
            with pytest.raises(errors.OutOfPhysicalMemory) as caught:
                pool.allocate(4 * _PAGE, 2 * _PAGE)
            assert (caught.value.requested, caught.value.available) == (2 * _PAGE, _PAGE)
            assert pool.stats() == before and pool._is_valid()
            pool.allocate(4 * _PAGE, _PAGE)

    def test_a_lowered_limit_takes_pages_kept_for_reuse_first(self) -> None:
        with VirtualMemoryPool(64 * _PAGE, _PAGE, self.device, physical_limit=8 * _PAGE) as pool:
            pool.allocate(0, 4 * _PAGE)
            pool.deallocate(0, 3 * _PAGE)
            assert pool.physical_memory_usage == 4 * _PAGE
            pool.physical_limit = 2 * _PAGE
            assert (pool.physical_limit, pool.physical_memory_usage) == (2 * _PAGE, 2 * _PAGE)
            pool.physical_limit = 0
            pool.deallocate(3 * _PAGE, _PAGE)
            assert pool.physical_memory_usage == 0
            with pytest.raises(errors.OutOfPhysicalMemory):
                pool.allocate(0, 1)

    def test_two_pools_share_a_budget(self) -> None:
        limit = PhysicalLimit(4 * _PAGE)
        with (
            VirtualMemoryPool(64 * _PAGE, _PAGE, self.device, budget=limit) as first,
            VirtualMemoryPool(64 * _PAGE, _PAGE, self.device, budget=limit) as second,
        ):
            first.allocate(0, 3 * _PAGE)
            with pytest.raises(errors.OutOfPhysicalMemory):
                second.allocate(0, 2 * _PAGE)
            first.deallocate(0, 3 * _PAGE)
            first.trim()
            second.allocate(0, 4 * _PAGE)
            assert limit.used == 4 * _PAGE
        assert limit.used == 0

    # --- Blocks ---

    def test_small_blocks_share_a_page(self, pool: VirtualMemoryPool) -> None:
        blocks = [pool.allocate(size=1000) for _ in range(100)]
        assert pool.stats().mapped_pages == 1
        assert len({block.address for block in blocks}) == 100
        for block in blocks:
            pool.deallocate(block)
        assert pool.stats().mapped_pages == 0

    def test_a_block_is_given_back_once(self, pool: VirtualMemoryPool) -> None:
        block = pool.allocate(size=10)
        pool.deallocate(block)
        assert not block.live
        for call in (lambda: pool.deallocate(block), lambda: block.address, lambda: pool.grow(block, 20)):
            with pytest.raises(errors.UseAfterFree):
                call()

    def test_a_block_of_another_pool_is_refused(self, pool: VirtualMemoryPool) -> None:
        with VirtualMemoryPool(_PAGE, _PAGE, self.device) as other:
            block = other.allocate(size=10)
            with pytest.raises(errors.ForeignBlock):
                pool.deallocate(block)
            assert block.live

    def test_a_dropped_block_goes_back(self, pool: VirtualMemoryPool) -> None:
        block = pool.allocate(size=10)
        del block
        gc.collect()
        assert pool.stats().live_blocks == 0

    def test_a_block_in_a_cycle_goes_back(self, pool: VirtualMemoryPool) -> None:
        make_cycle(pool)
        gc.collect()
        assert pool.stats().live_blocks == 0

    def test_grow_and_shrink_keep_the_contents(self, pool: VirtualMemoryPool) -> None:
        block, wall = pool.allocate(size=_PAGE, movable=True), pool.allocate(size=10)
        write(pool, block, b"abc" * 1000)
        pool.grow(block, 3 * _PAGE + 1)
        assert (block.size, read(pool, block, 3000)) == (3 * _PAGE + 1, b"abc" * 1000)
        pool.shrink(block, 3000)
        assert (block.size, read(pool, block, 3000)) == (3000, b"abc" * 1000)
        assert wall.live and pool._is_valid()

    def test_a_pinned_block_with_a_neighbour_cannot_grow(self, pool: VirtualMemoryPool) -> None:
        pinned, wall = pool.allocate(size=256), pool.allocate(size=256)
        assert wall.address == pinned.address + 256
        before = pool.stats()
        with pytest.raises(errors.OutOfVirtualMemory):
            pool.grow(pinned, 512)
        assert pool.stats() == before and pinned.size == 256

    # --- Compaction ---

    def test_compaction_keeps_contents_and_gives_pages_back(self, pool: VirtualMemoryPool) -> None:
        told: list[tuple[PoolBlock, int, int]] = []
        blocks = [pool.allocate(size=_PAGE // 2 - 256, on_move=lambda *move: told.append(move)) for _ in range(24)]
        for number, block in enumerate(blocks):
            write(pool, block, bytes([number]) * 500)
        where = [block.address for block in blocks]
        for block in blocks[::2]:
            pool.deallocate(block)
        report = pool.compact()
        assert report.finished and report.pages_released > 0 and report.blocks_moved == len(told)
        assert pool.stats().mapped_pages <= 8  # six, and at most two that are partly filled
        for number, block in list(enumerate(blocks))[1::2]:
            assert read(pool, block, 500) == bytes([number]) * 500
            assert (block.address != where[number]) == (block.generation > 1)
        assert all(block.address == new for block, _, new in told)

    def test_pinned_and_held_blocks_stay(self, pool: VirtualMemoryPool) -> None:
        blocks = [pool.allocate(size=_PAGE // 2, movable=number % 4 != 1) for number in range(16)]
        for block in blocks[::2]:
            pool.deallocate(block)
        with blocks[3].hold() as address:
            pinned = [block.address for block in blocks[1::4]]
            pool.compact()
            assert blocks[3].address == address and [block.address for block in blocks[1::4]] == pinned
            with pytest.raises(errors.StillHeld) as caught:
                pool.deallocate(blocks[3])
            assert (caught.value.address, caught.value.holds) == (address, 1)
        pool.deallocate(blocks[3])

    def test_a_byte_budget_stops_and_the_next_call_goes_on(self, pool: VirtualMemoryPool) -> None:
        blocks = [pool.allocate(size=_PAGE // 2, movable=True) for _ in range(32)]
        for block in blocks[::2]:
            pool.deallocate(block)
        reports = [pool.compact(max_bytes=_PAGE)]
        assert not reports[0].finished and reports[0].bytes_copied <= _PAGE
        while not reports[-1].finished:
            reports.append(pool.compact(max_bytes=_PAGE))
        assert pool.stats().mapped_pages == 8
        assert not pool.compact(max_seconds=0).blocks_moved
        for nonsense in (-1.0, float("nan")):
            with pytest.raises(errors.InvalidArgument):
                pool.compact(max_seconds=nonsense)

    def test_an_owner_that_raises_keeps_the_news_from_nobody(self, pool: VirtualMemoryPool) -> None:
        told: list[PoolBlock] = []

        def complain(block: PoolBlock, old: int, new: int) -> None:
            told.append(block)
            raise LookupError("no")

        blocks = [pool.allocate(size=_PAGE // 2, on_move=complain) for _ in range(16)]
        for block in blocks[::2]:
            pool.deallocate(block)
        with pytest.raises(errors.CallbackFailed) as caught:
            pool.compact()
        assert isinstance(caught.value.__cause__, LookupError)
        assert len(told) > 1 and pool._is_valid() and pool.compact().finished

    def test_an_owner_may_use_the_pool_while_it_is_told(self, pool: VirtualMemoryPool) -> None:
        known: dict[int, int] = {}

        def move(block: PoolBlock, old: int, new: int) -> None:
            assert known[id(block)] == old
            known[id(block)] = new
            pool.deallocate(pool.allocate(size=_PAGE))
            pool.compact()

        blocks = [pool.allocate(size=_PAGE // 2, on_move=move) for _ in range(16)]
        known.update({id(block): block.address for block in blocks})
        for block in blocks[::2]:
            pool.deallocate(block)
        pool.compact()
        assert all(known[id(block)] == block.address for block in blocks[1::2])

    # --- Suspension ---

    @pytest.mark.parametrize("contents", ["main", "file", "folder", "drop"])
    def test_suspended_memory_keeps_its_addresses(
        self, pool: VirtualMemoryPool, contents: str, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        place = str(tmp_path_factory.mktemp("spilled")) if contents == "folder" else contents
        block = pool.allocate(size=3 * _PAGE + 10, tag="model")
        pool.allocate(40 * _PAGE, 2 * _PAGE, tag="model")
        other = pool.allocate(size=100, tag="other")  # in the last page of the block
        address, generation = block.address, block.generation
        write(pool, block, b"weights" * 100)
        write(pool, other, b"o" * 100)
        size = 5 * _PAGE + 10
        assert pool.suspend("model", place) == size
        assert block.suspended and pool.stats().suspended_bytes == size
        assert pool.stats().mapped_pages == 1 and not pool.is_mapped(40 * _PAGE, 1)
        assert read(pool, other, 100) == b"o" * 100
        with pytest.raises(errors.InvalidArgument):
            pool.grow(block, 4 * _PAGE)
        assert pool.resume("model") == size
        assert (block.address, block.suspended) == (address, False) and block.generation > generation
        if contents != "drop":
            assert read(pool, block, 700) == b"weights" * 100
        assert pool.resume("model") == 0 and pool.suspend("nothing") == 0

    def test_what_is_left_of_a_suspended_range_comes_back_with_its_bytes(self, pool: VirtualMemoryPool) -> None:
        address = pool.allocate(0, 3 * _PAGE, tag="model")
        for page in range(3):
            write_at(pool, address + page * _PAGE, bytes([page + 1]) * 64)
        pool.suspend("model")
        pool.deallocate(_PAGE, _PAGE)
        assert pool.resume("model") == 2 * _PAGE
        assert read_at(pool, address, 64) == b"\1" * 64
        assert read_at(pool, address + 2 * _PAGE, 64) == b"\3" * 64
        assert not pool.is_mapped(_PAGE, 1)

    def test_contents_of_blocks_that_are_no_more_are_let_go(self, pool: VirtualMemoryPool) -> None:
        block = pool.allocate(size=_PAGE, tag="model")
        pool.suspend("model")
        pool.deallocate(block)
        assert len(pool._spilled) == 1
        pool.trim()
        assert (len(pool._spilled), pool.resume("model"), pool.stats().suspended_bytes) == (0, 0, 0)

    def test_a_resume_without_room_changes_nothing(self) -> None:
        with VirtualMemoryPool(64 * _PAGE, _PAGE, self.device, physical_limit=2 * _PAGE) as pool:
            block = pool.allocate(size=2 * _PAGE, tag="model")
            write(pool, block, b"x" * 99)
            pool.suspend("model")
            pool.allocate(32 * _PAGE, _PAGE)
            with pytest.raises(errors.OutOfPhysicalMemory):
                pool.resume("model")
            assert block.suspended and pool._is_valid()
            pool.deallocate(32 * _PAGE, _PAGE)
            pool.resume("model")
            assert read(pool, block, 99) == b"x" * 99

    def test_what_a_stream_uses_or_somebody_holds_is_not_suspended(self, pool: VirtualMemoryPool) -> None:
        gate = Gate()
        block = pool.allocate(size=_PAGE, tag="model")
        with block.hold(), pytest.raises(errors.StillHeld):
            pool.suspend("model")
        with Stream(pool.driver) as stream:
            gate.hold(stream)
            pool.record_use(block, stream=stream)
            with pytest.raises(errors.StreamMisuse):
                pool.suspend("model")
            assert not block.suspended
            gate.open()
            stream.synchronize()
            assert pool.suspend("model", "drop") == _PAGE

    def test_nonsense_for_contents_changes_nothing(self, pool: VirtualMemoryPool) -> None:
        block = pool.allocate(size=10, tag="model")
        with pytest.raises(errors.InvalidArgument):
            pool.suspend("model", "/no/such/folder")
        assert not block.suspended
        pool.deallocate(block)  # and nothing holds it

    # --- Streams ---

    def test_pages_return_after_the_streams_that_used_them(self, pool: VirtualMemoryPool) -> None:
        gate = Gate()
        block = pool.allocate(size=2 * _PAGE)
        pool.allocate(32 * _PAGE, 2 * _PAGE)
        with Stream(pool.driver) as stream, Stream(pool.driver) as idle:
            gate.hold(stream)
            pool.record_use(block, stream=stream)
            pool.record_use(32 * _PAGE, 2 * _PAGE, stream)
            pool.deallocate(block, stream=idle)  # returns at once
            pool.deallocate(32 * _PAGE, _PAGE)
            stats = pool.stats()
            assert (stats.mapped_pages, stats.retired_bytes) == (4, 3 * _PAGE)
            assert not pool.is_mapped(32 * _PAGE, 1) and pool.is_mapped(33 * _PAGE, _PAGE)
            with pytest.raises(errors.AlreadyMapped):
                pool.allocate(32 * _PAGE, _PAGE)
            gate.open()
            stream.synchronize()
            pool.reap_pending()
            assert (pool.stats().mapped_pages, pool.stats().retired_bytes) == (1, 0)
            pool.allocate(32 * _PAGE, _PAGE)

    def test_dropping_a_pool_waits_for_its_streams(self) -> None:
        gate = Gate()
        pool = VirtualMemoryPool(64 * _PAGE, _PAGE, self.device)
        with Stream(pool.driver) as stream:
            gate.hold(stream)
            block = pool.allocate(size=_PAGE)
            pool.record_use(block, stream=stream)
            pool.deallocate(block)
            gate.open()
            del pool, block
            gc.collect()

    # --- The end ---

    def test_a_closed_pool_refuses_everything(self) -> None:
        pool = VirtualMemoryPool(64 * _PAGE, _PAGE, self.device)
        block = pool.allocate(size=10, tag="model")
        pool.suspend("model")
        pool.close()
        pool.close()
        for call in (lambda: pool.allocate(0, 1), pool.stats, lambda: block.address, lambda: pool.suspend("model")):
            with pytest.raises(errors.UseAfterRelease):
                call()
        assert not block.live

    def test_pages_are_made_ahead_and_kept_up_to_a_threshold(self) -> None:
        with VirtualMemoryPool(
            64 * _PAGE, _PAGE, self.device, low_water=3 * _PAGE, release_threshold=4 * _PAGE
        ) as pool:
            assert pool.step_ahead(2 * _PAGE) == 2 * _PAGE and pool.step_ahead() == _PAGE
            pool.allocate(0, 6 * _PAGE)
            assert pool.stats().recycled_pages == 3
            pool.deallocate(0, 6 * _PAGE)
            assert pool.stats().cached_pages == 4 and pool.trim(_PAGE) == 3 * _PAGE
            with pytest.raises(errors.InvalidArgument):
                pool.set_watermarks(5 * _PAGE, 4 * _PAGE)

    def test_stats_are_numbers_of_one_moment(self, pool: VirtualMemoryPool) -> None:
        pool.allocate(0, 10)
        stats = pool.stats()
        assert isinstance(stats, MemoryStats)
        assert (stats.live_bytes, stats.physical_usage, stats.total_free) == (_PAGE, _PAGE, 63 * _PAGE)


def make_cycle(pool: VirtualMemoryPool) -> None:
    """A block whose owner only it knows."""
    seen: list[object] = []
    seen.append(pool.allocate(size=10, on_move=lambda *told: seen.append(told)))


def write_at(pool: VirtualMemoryPool, address: int, data: bytes) -> None:
    """Put bytes there by a copy of the driver."""
    source = ctypes.create_string_buffer(data, len(data))
    pool.driver.copy(address, ctypes.addressof(source), len(data))
    default_stream(pool.driver).synchronize()


def read_at(pool: VirtualMemoryPool, address: int, nbytes: int) -> bytes:
    """Get bytes from there by a copy of the driver."""
    target = ctypes.create_string_buffer(nbytes)
    pool.driver.copy(ctypes.addressof(target), address, nbytes)
    default_stream(pool.driver).synchronize()
    return target.raw


def write(pool: VirtualMemoryPool, block: PoolBlock, data: bytes) -> None:
    """Put bytes at the start of a block."""
    with block.hold() as address:
        write_at(pool, address, data)


def read(pool: VirtualMemoryPool, block: PoolBlock, nbytes: int) -> bytes:
    """Get the first bytes of a block."""
    with block.hold() as address:
        return read_at(pool, address, nbytes)
