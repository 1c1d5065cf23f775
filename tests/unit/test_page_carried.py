"""What was out when a window began: found from the events before it, whatever the order of the chunks of threads."""

import queue
import threading
from pathlib import Path

import pytest

import tensormem as tm
from tensormem.reports.page.carried import Carried, carried_into
from tensormem.trace import EventKind, Trace
from tensormem.trace.format import EVENT

Block = tuple[int, int, int]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One thread allocates and another gives back, and their chunks overlap."""
    made = tmp_path_factory.mktemp("carried") / "run.tmt"
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    handed: queue.Queue[tm.mr.DeviceBlock | None] = queue.Queue()

    def give_back() -> None:
        while (block := handed.get()) is not None:
            pool.deallocate(block)

    with tm.trace(made, flush_interval=0.001) as recording:
        thread = threading.Thread(target=give_back)
        thread.start()
        kept = []
        for number in range(3000):
            block = pool.allocate(256 + number, tag=f"step {number % 7}")
            kept.append(block) if number % 5 == 0 else handed.put(block)
            if number % 300 == 0:
                recording.flush()
        handed.put(None)
        thread.join()
    del kept
    return made


def out_before(trace: Trace, time_ns: int) -> set[Block]:
    """(resource, generation, bytes) of every block that was out, by the events in order."""
    live: dict[tuple[int, int], int] = {}
    for event in trace.events():
        if event.time_ns >= time_ns:
            break
        if event.kind is EventKind.ALLOCATE:
            live[event.resource, event.generation] = event.nbytes
        elif event.kind is EventKind.DEALLOCATE:
            live.pop((event.resource, event.generation), None)
    return {(resource, generation, nbytes) for (resource, generation), nbytes in live.items()}


def found(carried: Carried) -> set[Block]:
    rows = [EVENT.unpack(record) for _, record in carried.records]
    return {(row[6], row[3], row[2]) for row in rows}


@pytest.mark.parametrize("part", [0.01, 0.3, 0.5, 0.99])
def test_the_blocks_are_those_that_the_events_in_order_leave(path: Path, part: float) -> None:
    with tm.trace.open(path) as trace:
        start = round(trace.duration_ns * part)
        carried = carried_into(trace, start)
        assert found(carried) == out_before(trace, start) and len(carried.records) == len(found(carried))
        program = [record for _, record in carried.records if EVENT.unpack(record)[10] == 0]
        assert sum(blocks for _, _, blocks in carried.totals) == len(program)


def test_what_is_read_of_the_past_is_bounded_and_then_some_blocks_are_unknown(path: Path) -> None:
    with tm.trace.open(path) as trace:
        start = round(trace.duration_ns * 0.9)
        whole, part = carried_into(trace, start), carried_into(trace, start, look_back=trace.event_count // 4)
        assert found(part) < found(whole) and part.totals == whole.totals
        assert found(carried_into(trace, start, look_back=0)) == set()


def test_of_too_many_blocks_the_largest_are_known(path: Path) -> None:
    with tm.trace.open(path) as trace:
        start = round(trace.duration_ns * 0.9)
        sizes = sorted((nbytes for _, _, nbytes in out_before(trace, start)), reverse=True)
        kept = sorted((nbytes for _, _, nbytes in found(carried_into(trace, start, most=10))), reverse=True)
        assert kept == sizes[:10]


def test_nothing_is_carried_into_a_whole_trace(path: Path) -> None:
    with tm.trace.open(path) as trace:
        assert carried_into(trace, 0) == ([], [], [])
