"""Recordings: what is in the file is what was done."""

import random
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest

import tensormem as tm
from support.traces import record_steps
from tensormem import errors, mr
from tensormem.trace import Event, EventKind, Trace, columns


def recorded(path: Path, *, kinds: tuple[EventKind, ...] = ()) -> list[Event]:
    with tm.trace.open(path) as trace:
        return [event for event in trace.events() if not kinds or event.kind in kinds]


def test_a_recording_equals_a_model_of_what_was_done(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    chance = random.Random(7)
    leaf = mr.HostMemoryResource()
    model: list[tuple[str, int, int, int, str]] = []
    live: list[mr.DeviceBlock] = []
    with tm.trace(path):
        for _ in range(500):
            if live and chance.random() < 0.5:
                block = live.pop(chance.randrange(len(live)))
                model.append(("deallocate", block.ptr, block.nbytes, block.generation, block.tag))
                leaf.deallocate(block)
            else:
                block = leaf.allocate(chance.randrange(1, 5000), tag=chance.choice(["a", "b", "c"]))
                model.append(("allocate", block.ptr, block.nbytes, block.generation, block.tag))
                live.append(block)
        expected = {block.generation for block in live}
    events = recorded(path, kinds=(EventKind.ALLOCATE, EventKind.DEALLOCATE))
    assert [(e.kind, e.address, e.nbytes, e.generation, e.tag) for e in events] == model
    assert all(before.time_ns <= after.time_ns for before, after in pairwise(events))
    with tm.trace.open(path) as trace:
        assert {life.generation for life in trace.blocks() if life.end_ns is None} == expected
        assert trace.complete and trace.dropped == 0


def test_every_layer_reports_and_the_outermost_is_what_the_program_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    leaf = mr.HostMemoryResource()
    stack = mr.LimitingResourceAdaptor(mr.PoolMemoryResource(leaf), "1GiB")
    with tm.trace(path):
        stack.deallocate(stack.allocate(1000))
    with tm.trace.open(path) as trace:
        names = {trace.names.reporters[e.resource].name: e.depth for e in trace.events() if e.kind == "allocate"}
        assert names == {"LimitingResourceAdaptor": 0, "PoolMemoryResource": 1, "HostMemoryResource": 2}
        assert [life.nbytes for life in trace.blocks()] == [1000]
        reporters = trace.names.reporters  # those of other tests may be among them
        limiting = next(reporters[e.resource] for e in trace.events() if e.kind == "allocate" and e.depth == 0)
        pool = reporters[limiting.below]
        leaf_reporter = reporters[pool.below]
        assert (pool.name, leaf_reporter.name, leaf_reporter.space) == (
            "PoolMemoryResource",
            "HostMemoryResource",
            "main",
        )


def test_a_pool_that_grows_while_it_is_made_does_not_count_as_the_program(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    with tm.trace(path):
        pool = mr.PoolMemoryResource(mr.HostMemoryResource(), initial_pool_size="1MiB")
        pool.deallocate(pool.allocate(100))
    with tm.trace.open(path) as trace:
        assert [life.nbytes for life in trace.blocks()] == [100]
        assert trace.peaks("space")["main"].nbytes == 100


def test_every_kind_of_event_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    with tm.trace(path):
        leaf = mr.HostMemoryResource()
        a, b = leaf.allocate(4096), leaf.allocate(4096)
        leaf.driver.copy(a, b, 4096)
        with leaf.launch() as use:
            use.write(a)
        with tm.tag("scope"):
            pass
        tm.trace.counter("things", -3)
        with pytest.raises(errors.InvalidSize):
            leaf.allocate(0)
        leaf.deallocate(a)
        manager = tm.VirtualMemoryManager()
        size, _ = manager.granularity()
        with manager.reserve(4 * size) as addresses:
            pages = manager.alloc_physical(size)
            mapping = manager.map(addresses, pages, 0)
            manager.move(mapping, 2 * size)
            manager.unmap(addresses, 2 * size, size)
        del leaf, b, a
    kinds = Counter(event.kind for event in recorded(path))
    assert kinds.keys() == set(EventKind)


def test_moves_of_pages_are_seen_as_moves_and_leave_the_mapped_bytes_right(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    with tm.trace(path):
        pool = tm.VirtualMemoryPool("64MiB")
        blocks = [pool.allocate(size="2MiB") for _ in range(4)]
        for block in blocks[::2]:
            pool.deallocate(block)
        pool.compact()
    mapped = 0
    for event in recorded(path, kinds=(EventKind.MAP, EventKind.UNMAP)):
        mapped += event.nbytes if event.kind is EventKind.MAP else -event.nbytes
        assert mapped >= 0


def test_stacks_name_the_line_that_allocated(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    record_steps(path, stacks=True)
    with tm.trace.open(path) as trace:
        (weights,) = [life for life in trace.blocks() if life.tag == "weights"]
        frames = trace.stack(weights)
        assert frames[0].function == "record_steps" and frames[0].file.endswith("traces.py")
        assert 'tag="weights"' in Path(frames[0].file).read_text().splitlines()[frames[0].line - 1]
        assert frames[1].function == "test_stacks_name_the_line_that_allocated"


def test_without_stacks_there_are_none(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    record_steps(path)
    assert all(event.stack == 0 for event in recorded(path))


def test_eight_threads_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    pool = mr.PoolMemoryResource(mr.HostMemoryResource())

    def work(number: int) -> None:
        for _ in range(300):
            pool.deallocate(pool.allocate(64 * (1 + number), tag=f"thread {number}"))

    with tm.trace(path):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with tm.trace.open(path) as trace:
        by_tag: dict[str, set[int]] = {}
        counts: Counter[str] = Counter()
        for event in trace.events():
            if event.depth == 0 and event.kind == "allocate":
                by_tag.setdefault(event.tag, set()).add(event.thread)
                counts[event.tag] += 1
        assert counts == {f"thread {number}": 300 for number in range(8)}
        assert all(len(threads_of_tag) == 1 for threads_of_tag in by_tag.values())
        assert len(set().union(*by_tag.values())) == 8
        assert all(life.end_ns is not None for life in trace.blocks())


def test_a_file_that_is_there_is_refused_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    path.write_text("mine")
    with pytest.raises(errors.InvalidArgument, match="exists already"), tm.trace(path):
        pass
    assert path.read_text() == "mine" and not tm.trace.is_recording()
    with tm.trace(path, overwrite=True):
        assert tm.trace.is_recording()
    assert not tm.trace.is_recording()


def test_there_is_one_recording_at_a_time(tmp_path: Path) -> None:
    with tm.trace(tmp_path / "a.tmt"):
        with pytest.raises(errors.InvalidArgument, match="records a trace already"), tm.trace(tmp_path / "b.tmt"):
            pass
        assert tm.trace.is_recording()


def test_a_folder_that_is_not_there_is_an_error_and_nothing_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(errors.DriverError), tm.trace(tmp_path / "nowhere" / "run.tmt"):
        pass
    assert not tm.trace.is_recording()


def test_a_flushed_recording_can_be_read_while_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    leaf = mr.HostMemoryResource()
    with tm.trace(path, flush_interval=60) as recording:
        block = leaf.allocate(1000, tag="early")
        recording.flush()
        with tm.trace.open(path) as trace:
            assert not trace.complete
            assert [event.tag for event in trace.events() if event.kind == "allocate"] == ["early"]
        leaf.deallocate(block)
    assert recording.report.events > 1 and recording.report.nbytes == path.stat().st_size


def test_an_exception_in_the_body_ends_the_recording_and_goes_on(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), tm.trace(tmp_path / "run.tmt"):
        _ = 1 // 0
    assert not tm.trace.is_recording()
    with tm.trace.open(tmp_path / "run.tmt") as trace:
        assert trace.complete


def test_blocks_of_a_cache_are_in_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    with tm.trace(path):
        cache = tm.BlockCache("16MiB", block_size="64KiB")
        ids = cache.allocate(5)
        cache.deallocate(ids[:2])
    with tm.trace.open(path) as trace:
        lives = [life for life in trace.blocks() if life.nbytes == 64 * 1024]
        assert len(lives) == 5 and sum(life.end_ns is not None for life in lives) >= 2
        assert {trace.names.reporters[life.resource].name for life in lives} == {"BlockCache"}


def test_windows_begin_with_what_was_out(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    record_steps(path)
    with tm.trace.open(path) as trace:
        whole = trace.peaks("space")["main"]
        middle = [event.time_ns for event in trace.events() if event.kind == "counter" and event.tag == "loss"][1]
        window = trace.window(middle, middle + 10**12)
        inside = window.peaks("space")["main"]
        assert all(event.time_ns >= middle for event in window.events())
        assert 64 * 1024 < inside.nbytes <= whole.nbytes
        assert inside.final_bytes == whole.final_bytes


@pytest.mark.parametrize("by", ["space", "tag", "resource"])
def test_peaks_are_the_same_with_numpy_and_without(
    tmp_path: Path, by: Literal["space", "tag", "resource"], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.tmt"
    early = mr.PoolMemoryResource(mr.HostMemoryResource())
    block = early.allocate(999)
    with tm.trace(path):
        early.deallocate(block)  # begun before: not counted
        pool = mr.PoolMemoryResource(mr.HostMemoryResource())
        blocks = [pool.allocate(1 + 100 * number, tag=f"tag {number % 3}") for number in range(40)]
        for number in range(0, 40, 3):
            pool.deallocate(blocks[number])
    with tm.trace.open(path) as trace:
        parts = [trace, trace.window(trace.duration_ns // 2, trace.duration_ns)]
        with_numpy = [part.peaks(by) for part in parts]
        monkeypatch.setattr(columns, "available", lambda: False)
        assert [part.peaks(by) for part in parts] == with_numpy


def test_lifetimes_of_a_recording_can_be_planned(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    record_steps(path)
    with tm.trace.open(path) as trace:
        lifetimes = trace.lifetimes()
        tm.trace.check_lifetimes(lifetimes)
        assert tm.trace.peak_load(lifetimes) == trace.peaks("space")["main"].nbytes
        assert len(lifetimes) == 14


def test_the_report_of_a_trace_is_short(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    record_steps(path)
    trace: Trace = tm.trace.open(path)
    assert "events" in repr(trace) and trace.format == "tmt"
    trace.close()
