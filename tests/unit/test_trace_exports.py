"""Traces in other tools' formats: read back by those tools, or by what we have of them."""

import csv
import importlib
import io
import json
import pickle
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import tensormem as tm
from support.traces import record_steps
from tensormem.reports.traces.exports import FORMATS
from tensormem.reports.traces.exports.torch_snapshot import snapshot_of

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "reference" / "trace.schema.json"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "run.tmt"
    record_steps(path, stacks=True)
    return path


def exported(recording: Path, name: str) -> bytes:
    out = io.BytesIO()
    with tm.trace.open(recording) as trace:
        FORMATS[name].write(trace, out)
    return out.getvalue()


def test_an_rmm_log_read_back_is_the_same_traffic(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "rmm.csv"
    path.write_bytes(exported(recording, "rmm"))
    with tm.trace.open(recording) as ours, tm.trace.open(path) as theirs:
        mine = [e for e in ours.events() if e.depth == 0 and e.kind in ("allocate", "deallocate", "fail")]
        read = list(theirs.events())
        assert [(e.kind, e.address, e.nbytes, e.thread) for e in mine] == [
            (e.kind, e.address, e.nbytes, e.thread) for e in read
        ]
        assert theirs.peaks("space")[""].nbytes == ours.peaks("space")[""].nbytes


def test_a_snapshot_read_back_has_the_same_blocks_and_stacks(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(exported(recording, "torch"))
    with tm.trace.open(recording) as ours, tm.trace.open(path) as theirs:
        assert sorted((b.address, b.nbytes) for b in ours.blocks()) == sorted(
            (b.address, b.nbytes) for b in theirs.blocks()
        )
        (weights,) = [life for life in theirs.blocks() if life.tag == "weights"]
        assert theirs.stack(weights)[0].function == "record_steps"


def test_pytorch_itself_reads_the_snapshot(recording: Path) -> None:
    viewer: Any = importlib.import_module("torch.cuda._memory_viz")
    snapshot = pickle.loads(exported(recording, "torch"))
    assert len(viewer.trace_plot(snapshot)) > 1000  # the page of its viewer, with the data inside
    assert "64.5KiB" in viewer.segsum(snapshot)
    assert "64.0KiB" in viewer.trace(snapshot)


def test_a_snapshot_has_plain_values_only(recording: Path) -> None:
    def check(value: Any) -> None:
        assert type(value) in (dict, list, tuple, str, int, bool, float), type(value)
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
            check(inner)

    with tm.trace.open(recording) as trace:
        check(snapshot_of(trace))


def test_perfetto_gets_a_counter_per_space_that_ends_where_the_trace_does(recording: Path) -> None:
    rows = json.loads(exported(recording, "perfetto"))["traceEvents"]
    counters = [row for row in rows if row["ph"] == "C" and row["name"] == "bytes in main"]
    with tm.trace.open(recording) as trace:
        peak = trace.peaks("space")["main"]
    values = [row["args"]["bytes"] for row in counters]
    assert max(values) == peak.nbytes and values[-1] == peak.final_bytes
    assert [row["args"]["value"] for row in rows if row["name"] == "loss"] == [100, 99, 98]
    begins, ends = ([row for row in rows if row["ph"] == phase] for phase in "BE")
    assert len(begins) == len(ends) == 3 and all("ts" in row for row in begins)


def test_the_table_has_every_event_with_names(recording: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(exported(recording, "csv").decode())))
    with tm.trace.open(recording) as trace:
        assert len(rows) == trace.event_count
    assert {row["space"] for row in rows if row["kind"] == "allocate"} == {"main"}


def test_the_json_keeps_to_its_schema_and_loses_nothing(recording: Path) -> None:
    document = json.loads(exported(recording, "json"))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    with tm.trace.open(recording) as trace:
        events = list(trace.events())
        assert len(document["events"]) == len(events)
        for row, event in zip(document["events"], events, strict=True):
            assert tm.trace.Event(**{**row, "kind": tm.trace.EventKind(row["kind"])}) == event


def test_lifetimes_read_back_are_the_same(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "life.csv"
    path.write_bytes(exported(recording, "lifetimes"))
    with tm.trace.open(recording) as trace:
        assert tm.trace.read_lifetimes(path) == trace.lifetimes()
