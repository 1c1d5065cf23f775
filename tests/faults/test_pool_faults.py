"""For every k the k-th system call of an elastic pool fails: each operation is done or undone, and nothing leaks."""

from collections.abc import Callable

import pytest

from support.holdings import nothing_left_behind
from tensormem import errors
from tensormem.pools import PoolBlock, VirtualMemoryPool
from tensormem.testing.faults import each_system_call_fails

PAGE = 2 << 20
Operation = Callable[[VirtualMemoryPool, list[PoolBlock]], object]

OPERATIONS: dict[str, Operation] = {
    "allocate": lambda pool, blocks: blocks.append(pool.allocate(size=3 * PAGE + 1)),
    "allocate at": lambda pool, blocks: pool.allocate(50 * PAGE, 3 * PAGE),
    "deallocate": lambda pool, blocks: pool.deallocate(blocks[1]),
    "deallocate at": lambda pool, blocks: pool.deallocate(41 * PAGE, PAGE),
    "grow": lambda pool, blocks: pool.grow(blocks[1], 5 * PAGE),
    "shrink": lambda pool, blocks: pool.shrink(blocks[1], 100),
    "compact": lambda pool, blocks: pool.compact(),
    "suspend": lambda pool, blocks: pool.suspend("model"),
    "trim": lambda pool, blocks: pool.trim(),
    "step ahead": lambda pool, blocks: pool.step_ahead(),
}


def build() -> tuple[VirtualMemoryPool, list[PoolBlock]]:
    pool = VirtualMemoryPool(64 * PAGE, low_water=2 * PAGE)
    sizes = (100, 2 * PAGE + 9, PAGE // 2, PAGE // 2, PAGE // 2, 3 * PAGE, 500)
    blocks = [pool.allocate(size=size, movable=True, tag="model") for size in sizes]
    pool.allocate(40 * PAGE, 3 * PAGE)
    for index in (5, 3, 2):
        pool.deallocate(blocks.pop(index))
    for number, block in enumerate(blocks):
        memoryview(block)[:] = bytes([number + 1]) * block.size
    return pool, blocks


@pytest.mark.parametrize("name", OPERATIONS)
def test_whichever_system_call_fails_an_operation_is_whole(name: str) -> None:
    held: list[tuple[VirtualMemoryPool, list[PoolBlock]]] = []
    build()[0].close()  # what is set up once for the whole process is set up now

    def scenario() -> None:
        OPERATIONS[name](*held[0])

    with nothing_left_behind():
        outcomes = each_system_call_fails(scenario)
        more = True
        while more:
            held[:] = [build()]
            outcome = next(outcomes, "the end")
            assert outcome in (None, "the end") or isinstance(outcome, errors.TensormemError), repr(outcome)
            more = outcome != "the end"
            pool, blocks = held[0]
            assert pool._is_valid()
            pool.resume("model")
            for number, block in enumerate(blocks[:4]):
                if block.live:
                    assert set(bytes(memoryview(block)[:100])) == {number + 1}
            held.clear()
            pool.close()
            del pool, blocks


def test_whichever_system_call_of_a_resume_fails_contents_are_kept() -> None:
    held: list[tuple[VirtualMemoryPool, list[PoolBlock]]] = []
    build()[0].close()
    with nothing_left_behind():
        outcomes = each_system_call_fails(lambda: held[0][0].resume("model"))
        more = True
        while more:
            held[:] = [build()]
            pool, blocks = held[0]
            pool.suspend("model")
            pool.trim()
            more = next(outcomes, "the end") != "the end"
            assert pool._is_valid()
            pool.resume("model")
            for number, block in enumerate(blocks):
                assert set(bytes(memoryview(block))) == {number + 1}
            held.clear()
            pool.close()
            del pool, blocks, block
