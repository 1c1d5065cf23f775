"""An elastic pool against a dictionary of bytes, whatever is done to it and in whatever order."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tensormem import errors
from tensormem.pools import PoolBlock, VirtualMemoryPool

PAGE = 64 << 10
PAGES = 48
TAGS = st.sampled_from(["red", "blue"])
SIZES = st.one_of(st.integers(1, 2000), st.integers(1, 3 * PAGE), st.sampled_from([PAGE, 2 * PAGE, PAGE - 1, PAGE + 1]))


class ElasticPool(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[tuple[PoolBlock, bytes, str]] = []
        self.pages: dict[int, tuple[bytes, str]] = {}  # those at places of ours
        self.suspended: set[PoolBlock] = set()
        self.suspended_pages: set[int] = set()
        self.known: dict[PoolBlock, int] = {}
        self.next = 0

    @initialize(limit=st.sampled_from([None, 20 * PAGE]), threshold=st.sampled_from([0, 4 * PAGE, None]))
    def open(self, limit: int | None, threshold: int | None) -> None:
        self.pool = VirtualMemoryPool(PAGES * PAGE, PAGE, physical_limit=limit, release_threshold=threshold)

    def fresh(self) -> bytes:
        self.next += 1
        return self.next.to_bytes(4, "little")

    def moved(self, block: PoolBlock, old: int, new: int) -> None:
        assert self.known.get(block, old) == old
        self.known[block] = new

    def write(self, block: PoolBlock, mark: bytes) -> None:
        view = memoryview(block)
        view[:4] = mark[: len(view)]
        view[-4:] = mark[: len(view)]
        view.release()

    @rule(size=SIZES, movable=st.booleans(), tag=TAGS)
    def allocate(self, size: int, movable: bool, tag: str) -> None:
        try:
            block = self.pool.allocate(size=size, on_move=self.moved if movable else None, tag=tag)
        except (errors.OutOfPhysicalMemory, errors.OutOfVirtualMemory):
            return
        self.known[block] = block.address
        mark = self.fresh()
        self.write(block, mark)
        self.blocks.append((block, mark, tag))

    @rule(first=st.integers(0, PAGES - 1), count=st.integers(1, 4), tag=TAGS)
    def allocate_at(self, first: int, count: int, tag: str) -> None:
        try:
            self.pool.allocate(first * PAGE + 1, count * PAGE - 1, tag=tag)
        except (errors.AlreadyMapped, errors.InvalidOffset, errors.OutOfPhysicalMemory):
            return
        for page in range(first, first + count):
            mark = self.fresh()
            self.pool.driver.fill(self.pool.base_address + page * PAGE, mark[0], 1, (PAGE, 1, 1))
            self.pages[page] = (mark, tag)

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def deallocate(self, data: Any) -> None:
        block, _, _ = self.blocks.pop(data.draw(st.integers(0, len(self.blocks) - 1)))
        self.pool.deallocate(block)
        self.suspended.discard(block)
        del self.known[block]

    @rule(first=st.integers(0, PAGES - 1), count=st.integers(1, 4))
    def deallocate_at(self, first: int, count: int) -> None:
        wanted = set(range(first, first + count))
        try:
            self.pool.deallocate(first * PAGE, count * PAGE)
        except (errors.NotMapped, errors.InvalidOffset):
            assert not wanted <= self.pages.keys()
            return
        assert wanted <= self.pages.keys()
        for page in wanted:
            del self.pages[page]
        self.suspended_pages -= wanted

    @precondition(lambda self: self.blocks)
    @rule(data=st.data(), size=SIZES)
    def resize(self, data: Any, size: int) -> None:
        index = data.draw(st.integers(0, len(self.blocks) - 1))
        block, mark, _ = self.blocks[index]
        if block in self.suspended:
            return
        try:
            (self.pool.grow if size >= block.size else self.pool.shrink)(block, size)
        except (errors.OutOfPhysicalMemory, errors.OutOfVirtualMemory):
            return
        assert bytes(memoryview(block)[:4]) == mark[: min(4, block.size)] or min(size, block.size) < 4
        self.write(block, mark)

    @rule(most=st.sampled_from([None, PAGE, 3 * PAGE]))
    def compact(self, most: int | None) -> None:
        report = self.pool.compact(max_bytes=most)
        assert most is None or report.bytes_copied + report.pages_remapped * PAGE <= most + PAGE

    @rule(tag=TAGS, contents=st.sampled_from(["main", "file"]))
    def suspend(self, tag: str, contents: str) -> None:
        self.pool.suspend(tag, contents)
        self.suspended |= {block for block, _, own in self.blocks if own == tag}
        self.suspended_pages |= {page for page, (_, own) in self.pages.items() if own == tag}

    @rule(tag=TAGS)
    def resume(self, tag: str) -> None:
        try:
            self.pool.resume(tag)
        except errors.OutOfPhysicalMemory:
            return
        self.suspended -= {block for block, _, own in self.blocks if own == tag}
        self.suspended_pages -= {page for page, (_, own) in self.pages.items() if own == tag}

    @rule(keep=st.integers(0, 4))
    def trim(self, keep: int) -> None:
        self.pool.trim(keep * PAGE)
        assert self.pool.stats().cached_pages <= keep

    @rule(limit=st.sampled_from([None, 8 * PAGE, 30 * PAGE]))
    def change_the_limit(self, limit: int | None) -> None:
        self.pool.physical_limit = limit

    @invariant()
    def everything_is_where_and_what_it_was(self) -> None:
        if not hasattr(self, "pool"):
            return
        assert self.pool._is_valid()
        for block, mark, _ in self.blocks:
            assert block.suspended == (block in self.suspended)
            assert self.known[block] == block.address
            if block not in self.suspended:
                view = memoryview(block)
                assert bytes(view[-4:])[-1] == mark[: len(view)][-1] and bytes(view[:1]) == mark[:1]
                view.release()
        for page in self.pages:
            alive = page not in self.suspended_pages
            assert self.pool.is_mapped(page * PAGE, PAGE) == alive
        stats = self.pool.stats()
        live = sum(block.size for block, _, _ in self.blocks if block not in self.suspended)
        assert stats.live_bytes == live + PAGE * len(self.pages.keys() - self.suspended_pages)

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            self.pool.close()


TestElasticPool = ElasticPool.TestCase
TestElasticPool.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
