"""Traces of other tools: RMM's log, PyTorch's snapshot, lifetimes."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import tensormem as tm
from support.workloads import cases
from tensormem.errors import InvalidLifetimes, TraceError

RMM = """Thread,Time,Action,Pointer,Size,Stream
7,23:59:59.900000,allocate,0x1000,100,0
7,23:59:59.950000,allocate,0x2000,50,0x1
8,00:00:00.000001,free,0x1000,100,0
8,00:00:00.100000,allocate failure,(nil),4096,0
8,00:00:00.200000,allocate,0x1000,10,0
"""


def test_an_rmm_log_is_a_trace_and_runs_over_midnight(tmp_path: Path) -> None:
    path = tmp_path / "rmm.log"
    path.write_text(RMM)
    trace = tm.trace.open(path)
    kinds = [event.kind for event in trace.events()]
    assert trace.format == "rmm" and kinds == ["allocate", "allocate", "deallocate", "fail", "allocate"]
    assert [event.time_ns for event in trace.events()] == [0, 50_000_000, 100_001_000, 200_000_000, 300_000_000]
    lives = sorted(trace.blocks(), key=lambda life: life.lower)
    assert [(life.nbytes, life.end_ns is None) for life in lives] == [(100, False), (50, True), (10, True)]


def test_what_our_own_log_sink_writes_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "ours.csv"
    mr = tm.mr.LoggingResourceAdaptor(tm.mr.HostMemoryResource(), sink=tm.mr.CsvSink(path))
    mr.deallocate(mr.allocate(100))
    mr.flush()
    trace = tm.trace.open(path)
    assert [event.kind for event in trace.events()] == ["allocate", "deallocate"]


@pytest.mark.parametrize("row", ["7,25:99,allocate", "7,00:00:00.1,steal,0x1,5,0", "x" * 500])
def test_a_row_that_is_none_is_refused_with_its_offset(tmp_path: Path, row: str) -> None:
    path = tmp_path / "rmm.log"
    path.write_text(RMM + row + "\n")
    with pytest.raises(TraceError, match="no row of an RMM log") as raised:
        tm.trace.open(path)
    assert raised.value.offset == len(RMM)


def snapshot(**more: Any) -> dict[str, Any]:
    rows = [
        {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": 10, "frames": []},
        {"action": "free_requested", "addr": 4096, "size": 512, "stream": 0, "time_us": 20, "frames": []},
        {"action": "free_completed", "addr": 4096, "size": 512, "stream": 0, "time_us": 21, "frames": []},
        {"action": "free_completed", "addr": 8192, "size": 64, "stream": 0, "time_us": 30, "frames": []},
        {"action": "segment_alloc", "addr": 0, "size": 2**21, "stream": 0, "time_us": 31, "frames": []},
        {"action": "oom", "device_free": 1, "size": 2**30, "stream": 0, "time_us": 40, "frames": []},
    ]
    blocks = [{"address": 2**20, "size": 100, "state": "active_allocated", "frames": []}]
    segment = {"device": 0, "address": 2**20, "total_size": 100, "blocks": blocks}
    return {"segments": [segment], "device_traces": [rows], **more}


def test_a_snapshot_of_pytorch_is_a_trace_with_what_was_out_before_it(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    trace = tm.trace.open(path)
    assert trace.format == "torch"
    lives = {life.address: life for life in trace.blocks()}
    assert lives[4096].nbytes == 512 and lives[4096].end_ns == 11_000
    assert lives[8192].start_ns == 0 and lives[8192].end_ns == 20_000
    assert lives[2**20].start_ns == 0 and lives[2**20].end_ns is None
    assert [event.nbytes for event in trace.events() if event.kind == "fail"] == [2**30]
    assert trace.peaks("space").keys() == {"", "gpu:0"}


def test_a_pickle_that_names_anything_is_refused_and_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "pwned"),)

    for evil in (snapshot(more=Evil()), Evil(), snapshot(more=Path), snapshot(more=bytearray(b"x"))):
        path = tmp_path / "evil.pickle"
        path.write_bytes(pickle.dumps(evil))
        with pytest.raises(TraceError, match="plain values only"):
            tm.trace.open(path)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"segments": []},
        {"device_traces": [5]},
        {"device_traces": [[{"addr": 1}]]},
        {"device_traces": [[{"action": "alloc", "addr": -1}]]},
        {"device_traces": [[{"action": "alloc", "size": "big"}]]},
    ],
)
def test_a_pickle_that_is_no_snapshot_is_refused(tmp_path: Path, wrong: object) -> None:
    path = tmp_path / "wrong.pickle"
    path.write_bytes(pickle.dumps(wrong))
    with pytest.raises(TraceError):
        tm.trace.open(path)


@pytest.mark.parametrize("put", [b"r\xff\xff\xff\x7f", b"p2147483647\n", b"p-1\n", b"q\x05"])
def test_a_pickle_with_wild_numbers_is_refused_before_python_makes_room(tmp_path: Path, put: bytes) -> None:
    sound = pickle.dumps(snapshot(), protocol=2)
    path = tmp_path / "wild.pickle"
    path.write_bytes(sound[:3] + put + sound[3:])
    with pytest.raises(TraceError, match="out of order") as refused:
        tm.trace.open(path)
    assert refused.value.offset == 3


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_snapshots_of_every_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    many = [{"action": "alloc", "addr": 4096 * n, "size": 512, "user_metadata": f"text {n}"} for n in range(2000)]
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [many]}, protocol))
    assert len(list(tm.trace.open(path).blocks())) == 2000


def _doubled(times: int) -> object:
    value: object = "x"
    for _ in range(times):
        value = (value, value)
    return value


_ROW = {"action": "alloc", "addr": 1, "size": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"device_traces": [[_ROW] * 20_000] * 20_000},
        {"device_traces": [[{"action": "alloc", "addr": _doubled(60)}]]},
        {"device_traces": [[]], "segments": [{"device": 0, "address": 0, "blocks": [{"size": 1}] * 9_999}] * 9_999},
        {
            "device_traces": [[]],
            "segments": [{"device": 0, "blocks": [{"size": 1, "state": "active_allocated", "address": []}]}],
        },
    ],
    ids=["events", "doubled", "blocks", "address"],
)
def test_a_small_pickle_that_unfolds_without_end_is_refused(tmp_path: Path, wrong: object) -> None:
    path = tmp_path / "small.pickle"
    path.write_bytes(pickle.dumps(wrong))
    with pytest.raises(TraceError):
        tm.trace.open(path)


def _heavy_key(end: bytes) -> bytes:
    """A pickle of 500 bytes whose one key names the same text 2**60 times."""
    value = b"\x80\x02}U\x01xq\x000"
    for number in range(60):
        value += b"h%ch%c%sq%c0" % (number, number, b"\x86", number + 1)
    return value + b"h%c" % 60 + end


@pytest.mark.parametrize("end", [b"K\x01s.", b"\x85K\x01s.", b"2\x86K\x01s."], ids=["key", "in one", "in two"])
def test_a_key_that_unfolds_without_end_is_refused_before_it_is_hashed(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "small.pickle"
    path.write_bytes(_heavy_key(end))
    assert path.stat().st_size < 500
    with pytest.raises(TraceError, match="tuple of very many"):
        tm.trace.open(path)


def test_lifetimes_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "step.csv"
    path.write_text("id,lower,upper,size\na,10,40,16\nb,40,60,8\n")
    trace = tm.trace.open(path)
    assert trace.lifetimes() == [tm.trace.Lifetime("a", 10, 40, 16), tm.trace.Lifetime("b", 40, 60, 8)]
    assert trace.peaks()["main"].nbytes == 16  # half-open: a ends before b begins
    path.write_text("id,lower,upper,size\na,10,4,16\n")
    with pytest.raises(InvalidLifetimes):
        tm.trace.open(path)


def test_something_else_is_refused_with_what_it_begins_with(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"\xff\xd8\xff\xe0JFIF")
    with pytest.raises(TraceError, match="JFIF"):
        tm.trace.open(path)
    path.write_bytes(b"")
    with pytest.raises(TraceError):
        tm.trace.open(path)


@pytest.mark.parametrize("workload", cases("torch/*.pickle"), indirect=True)
def test_a_whole_snapshot_is_read(workload: Path) -> None:
    trace = tm.trace.open(workload)
    assert trace.format == "torch" and trace.peaks()["gpu:0"].nbytes > 2**20
    lifetimes = trace.lifetimes()
    tm.trace.check_lifetimes(lifetimes)
    assert len(lifetimes) >= 400


@pytest.mark.parametrize(
    "workload", cases("minimalloc/*.csv", "somas/resnet*.csv", "torch/*.csv", most=1), indirect=True
)
def test_whole_files_of_lifetimes_are_read(workload: Path) -> None:
    trace = tm.trace.open(workload)
    assert tm.trace.peak_load(trace.lifetimes()) == trace.peaks()["main"].nbytes
