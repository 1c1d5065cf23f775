"""Recordings of several processes as one: exact on one machine, by offset between machines, killed ones included."""

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

import tensormem as tm
from tensormem import errors
from tensormem.cli.main import cli
from tensormem.distributed.clocks import ClockOffset
from tensormem.trace import EventKind, merge
from tensormem.trace.format import EVENT
from tensormem.trace.writing import TraceWriter

SECOND = 10**9


def record(path: Path, tag: str, nbytes: int = 1000) -> None:
    mr = tm.mr.HostMemoryResource()
    with tm.trace(path, stacks=True):
        mr.deallocate(mr.allocate(nbytes, tag=tag))


def merged_file(folder: Path, *sources: Path, **options: ClockOffset) -> Path:
    target = folder / "all.tmt"
    with target.open("wb") as out:
        merge(sources, out, offsets={f"{name}.tmt": offset for name, offset in options.items()})
    return target


def synthetic(path: Path, *, wall_ns: int, monotonic_ns: int, times: list[int]) -> None:
    """A recording of another machine: blocks of 10 bytes at the given times."""
    with path.open("wb") as out:
        writer = TraceWriter(out, wall_ns=wall_ns, monotonic_ns=monotonic_ns)
        writer.define([(1, 7, (), ("there",)), (3, 3, (0,), ("HostMemoryResource", "main")), (2, 5, (), ("loop",))])
        rows = [EVENT.pack(at, 64 * n, 10, n, 256, 3, 3, 7, 0, 1, 0, 0, 0) for n, at in enumerate(times, 1)]
        writer.events(b"".join(rows), 5, times[0], times[-1])
        writer.close()


def times_of(path: Path, tag: str) -> list[int]:
    with tm.trace.open(path) as trace:
        return [event.time_ns for event in trace.events() if event.tag == tag and event.kind == "allocate"]


def test_recordings_of_one_machine_lie_exactly_and_keep_their_names(tmp_path: Path) -> None:
    record(tmp_path / "a.tmt", "weights", 1000)
    record(tmp_path / "b.tmt", "cache", 500)
    with tm.trace.open(merged_file(tmp_path, tmp_path / "b.tmt", tmp_path / "a.tmt")) as trace:
        traffic = [event for event in trace.events() if event.depth == 0 and event.tag in ("weights", "cache")]
        assert [(event.kind, event.tag) for event in traffic] == [
            ("allocate", "weights"),
            ("deallocate", "weights"),
            ("allocate", "cache"),
            ("deallocate", "cache"),
        ]
        assert trace.complete and trace.peaks("space")["main"].nbytes == 1000
        assert {trace.names.resource(event.resource).split(":")[0] for event in traffic} == {"a", "b"}
        assert all(Path(trace.stack(event)[0].file).name == Path(__file__).name for event in traffic)
        counters = {event.tag: event.other for event in trace.events() if event.kind is EventKind.COUNTER}
    assert counters["clock offset of a (ns)"] == counters["clock error of b (ns)"] == 0
    with tm.trace.open(tmp_path / "a.tmt") as first, tm.trace.open(tmp_path / "b.tmt") as second:
        begun = [trace.store.header.monotonic_ns for trace in (first, second)]  # type: ignore[attr-defined]
        alone = [event.time_ns for event in second.events() if event.tag == "cache"]
    assert times_of(tmp_path / "all.tmt", "cache")[0] == alone[0] + begun[1] - begun[0]


def test_another_machine_lies_by_its_measured_offset_or_by_the_calendar(tmp_path: Path) -> None:
    synthetic(tmp_path / "here.tmt", wall_ns=100 * SECOND, monotonic_ns=20 * SECOND, times=[0, 5])
    synthetic(tmp_path / "far.tmt", wall_ns=101 * SECOND, monotonic_ns=3 * SECOND, times=[10, 20])
    sources = tmp_path / "here.tmt", tmp_path / "far.tmt"
    assert times_of(merged_file(tmp_path, *sources), "there") == [0, 5, SECOND + 10, SECOND + 20]
    measured = merged_file(tmp_path, *sources, far=ClockOffset(19 * SECOND, 250))
    assert times_of(measured, "there") == [0, 5, 2 * SECOND + 10, 2 * SECOND + 20]
    with tm.trace.open(measured) as trace:
        counters = {event.tag: event.other for event in trace.events() if event.kind is EventKind.COUNTER}
        assert counters["clock offset of far (ns)"] == 19 * SECOND
        assert counters["clock error of far (ns)"] == 250
        assert trace.peaks("tag")["there"].nbytes == 40, "blocks of two files are never taken for one"
    earlier = merged_file(tmp_path, *sources, far=ClockOffset(10 * SECOND, 250))
    assert times_of(earlier, "there") == [10, 20, 7 * SECOND, 7 * SECOND + 5]


def test_a_killed_process_is_merged_as_far_as_it_came(tmp_path: Path) -> None:
    program = f"""
        import sys
        import tensormem as tm
        recording = tm.trace({str(tmp_path / "killed.tmt")!r}).start()
        block = tm.mr.HostMemoryResource().allocate(4096, tag="lost")
        recording.flush()
        print("ready", flush=True)
        sys.stdin.readline()
        """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        os.kill(process.pid, signal.SIGKILL)
    record(tmp_path / "lived.tmt", "kept")
    out = io.BytesIO()
    killed, lived = merge([tmp_path / "killed.tmt", tmp_path / "lived.tmt"], out)
    assert (killed.complete, lived.complete) == (False, True)
    (tmp_path / "all.tmt").write_bytes(out.getvalue())
    with tm.trace.open(tmp_path / "all.tmt") as trace:
        assert {event.tag for event in trace.events() if event.kind == "allocate"} == {"lost", "kept"}


def test_what_cannot_be_merged_is_refused(tmp_path: Path) -> None:
    record(tmp_path / "a.tmt", "weights")
    (tmp_path / "none.tmt").write_bytes(b"nothing of ours, but long enough to be looked at for a header of 64 bytes")
    with pytest.raises(errors.InvalidArgument, match="nothing to merge"):
        merge([], io.BytesIO())
    with pytest.raises(errors.InvalidArgument, match=r"b\.tmt, which is not merged"):
        merge([tmp_path / "a.tmt"], io.BytesIO(), offsets={"b.tmt": ClockOffset(1, 1)})
    with pytest.raises(errors.TraceError):
        merge([tmp_path / "a.tmt", tmp_path / "none.tmt"], io.BytesIO())


def test_the_command_writes_a_trace_that_the_other_commands_read(tmp_path: Path) -> None:
    for name in ("a.tmt", "b.tmt"):
        record(tmp_path / name, name[0])
    target, clocks = tmp_path / "all.tmt", tmp_path / "clocks.json"
    arguments = ["merge", str(tmp_path / "a.tmt"), str(tmp_path / "b.tmt"), "-o", str(target)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert "b: " in done.stderr and "error at most 0 ns" in done.stderr and "Next: tensormem stats" in done.stderr
    assert CliRunner().invoke(cli, ["stats", str(target)]).exit_code == 0
    assert CliRunner().invoke(cli, arguments).exit_code == 2, "it is there already"
    clocks.write_text(json.dumps({"version": 1, "offsets": {"b.tmt": {"offset_ns": 5, "error_ns": 3}}}))
    done = CliRunner().invoke(cli, [*arguments, "--force", "--clocks", str(clocks)])
    assert done.exit_code == 0 and "clock +5 ns, error at most 3 ns" in done.stderr
    clocks.write_text("[]")
    done = CliRunner().invoke(cli, [*arguments, "--force", "--clocks", str(clocks)])
    assert done.exit_code == 2 and "no file of clock offsets" in done.output
