"""Peaks between two samples: what a recording says of its own highest and lowest usage, and what readers make of it."""

import io
import threading
from pathlib import Path

import pytest

import tensormem as tm
from tensormem.reports.page.overview import overview_of
from tensormem.reports.page.payload import payload_of
from tensormem.reports.page.windows import window_of
from tensormem.trace import extremes
from tensormem.trace.extremes import extremes_of
from tensormem.trace.file import TraceFile
from tensormem.trace.format import PeakKind

GIB = 2**30


def record_spike(path: Path, *, around: int = 110_000) -> None:
    """Small blocks for a while, a spike of 8 GiB that is gone at once, and small blocks again."""
    mr = tm.mr.AbstractMemoryResource("64GiB")
    small = mr.allocate(4096, tag="base")
    with tm.trace(path):
        for half in range(2):
            for _ in range(around):
                mr.deallocate(mr.allocate(64, tag="small"))
            if half == 0:
                mr.deallocate(mr.allocate(8 * GIB, tag="spike"))
        mr.deallocate(small)


@pytest.fixture(scope="module")
def spike(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spike") / "run.tmt"
    record_spike(path)
    return path


def test_a_spike_between_two_samples_is_where_a_long_page_opens(spike: Path) -> None:
    with tm.trace.open(spike) as trace:
        assert trace.event_count > 400_000
        peak = trace.peaks("tag")["spike"]
        window = window_of(trace, most=50_000)
        assert window.start_ns <= peak.time_ns < window.end_ns
        assert max(overview_of(trace, most=20).highest) == 8 * GIB
        assert len(overview_of(trace, most=20).times_ns) <= 20
        assert payload_of(trace, window).events < 60_000


def test_what_the_recording_says_is_what_its_events_say(spike: Path) -> None:
    with tm.trace.open(spike) as trace:
        assert isinstance(trace.store, TraceFile)
        for kind, by in ((PeakKind.SPACE, "space"), (PeakKind.TAG, "tag")):
            exact = trace.peaks(by)  # type: ignore[arg-type]
            recorded: dict[str, tuple[int, int]] = {}
            for peak in trace.store.peaks(kind):
                name = trace.names.tags[peak.tag] or "untagged"
                recorded[name] = max(recorded.get(name, (0, 0)), (peak.highest, peak.highest_blocks))
            assert recorded == {name: (peak.nbytes, peak.blocks) for name, peak in exact.items() if name}
        whole = max(trace.store.peaks(), key=lambda peak: peak.highest)
        assert (whole.highest, whole.highest_ns) == (trace.peaks()[""].nbytes, trace.peaks()[""].time_ns)
        last = list(trace.store.peaks())[-1]
        assert (last.nbytes, last.blocks) == (0, 0)  # a block from before the recording is not counted


def test_threads_are_put_in_the_order_of_their_times(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    mr = tm.mr.AbstractMemoryResource("64GiB")

    def work() -> None:
        for number in range(2000):
            mr.deallocate(mr.allocate(1 + number % 97))

    with tm.trace(path) as recording:
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
            recording.flush()
        for worker in workers:
            worker.join()
    with tm.trace.open(path) as trace:
        assert isinstance(trace.store, TraceFile)
        recorded = max(peak.highest for peak in trace.store.peaks())
        assert recorded == trace.peaks()[""].nbytes


@pytest.mark.parametrize("window_events", [1000, 10**6])
def test_a_merged_trace_tells_the_same_from_its_events(
    tmp_path: Path, window_events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extremes, "_WINDOW_EVENTS", window_events)
    record_spike(tmp_path / "run.tmt", around=2000)
    out = io.BytesIO()
    tm.trace.merge([tmp_path / "run.tmt"], out)
    merged = tmp_path / "merged.tmt"
    merged.write_bytes(out.getvalue())
    with tm.trace.open(merged) as trace:
        assert isinstance(trace.store, TraceFile) and list(trace.store.peaks()) == []
        stretches = extremes_of(trace)
        assert max(stretch.highest for stretch in stretches) == 8 * GIB
        assert min(stretch.lowest for stretch in stretches) == 0
        by_event = list(extremes._by_event(trace.store.events()))
        assert max(stretch.highest for stretch in by_event) == 8 * GIB
