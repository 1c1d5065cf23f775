"""The blocks of a trace, found by columns: the same as event by event, whatever the trace."""

from pathlib import Path

import pytest

import tensormem as tm
from support.traces import record_steps
from tensormem.trace import EventKind, Trace, columns
from tensormem.trace.block_lives import BlockLife, lives_by_column, lives_by_event
from tensormem.trace.file import TraceFile


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "run.tmt"
    record_steps(path)
    return path


def both_ways(trace: Trace, resource: int | None = None) -> tuple[list[BlockLife], list[BlockLife]]:
    assert isinstance(trace.store, TraceFile) and columns.available()
    fast = lives_by_column(columns.Columns(trace.store, *trace._bounds), trace.names, resource)
    assert fast is not None
    return list(fast), list(lives_by_event(trace._traffic(resource), trace.names))


def test_both_ways_find_the_same_blocks(recorded: Path) -> None:
    with tm.trace.open(recorded) as trace:
        fast, slow = both_ways(trace)
        assert fast == slow and len(fast) > 10 and list(trace.blocks()) == slow
        for number in trace.names.reporters:
            fast, slow = both_ways(trace, number)
            assert fast == slow


def test_blocks_from_before_a_window_and_after_it_are_found_both_ways(recorded: Path) -> None:
    with tm.trace.open(recorded) as trace:
        middle = next(event.time_ns for event in trace.events() if event.kind == "deallocate")
        for start, end in ((0, middle), (middle, trace.duration_ns + 1), (middle, middle + 1)):
            fast, slow = both_ways(trace.window(start, end))
            assert fast == slow
        lives = list(trace.window(middle, trace.duration_ns + 1).blocks())
        assert any(life.start_ns is None and life.lower == 0 for life in lives)


def test_an_empty_trace_has_no_blocks(tmp_path: Path) -> None:
    with tm.trace(tmp_path / "empty.tmt"):
        pass
    with tm.trace.open(tmp_path / "empty.tmt") as trace:
        assert both_ways(trace) == ([], [])


def test_blocks_of_a_cache_whose_numbers_are_large_are_told_apart(tmp_path: Path) -> None:
    one, other = tm.BlockCache("1GiB", "256KiB"), tm.BlockCache("1GiB", "64KiB")
    with tm.trace(tmp_path / "caches.tmt"):
        ids, others = list(one.allocate(20)), list(other.allocate(20))
        one.deallocate(ids[::2])
        other.deallocate(others[1::2])
    one.close()
    other.close()
    with tm.trace.open(tmp_path / "caches.tmt") as trace:
        fast, slow = both_ways(trace)
        assert fast == slow and len(fast) == 40 and sum(life.end_ns is None for life in fast) == 20


def test_the_census_counts_every_kind(recorded: Path) -> None:
    with tm.trace.open(recorded) as trace:
        kinds, threads = trace.census()
        assert sum(kinds.values()) == trace.event_count and threads >= 1
        assert kinds[EventKind.ALLOCATE] == sum(event.kind == "allocate" for event in trace.events())
