"""`tensormem report`, the windows of pages and the data in them: without a browser."""

import base64
import json
import re
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tensormem as tm
from support.traces import record_steps
from tensormem.cli.main import cli
from tensormem.errors import InvalidArgument
from tensormem.reports.page import page_html, parse_window, payload_of, window_of
from tensormem.reports.page.overview import overview_of


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "run.tmt"
    record_steps(path, stacks=True)
    return path


@pytest.fixture
def lifetimes(tmp_path: Path) -> Path:
    path = tmp_path / "step.csv"
    path.write_text("id,lower,upper,size\na,0,4,16\nb,2,6,8\n")
    return path


def run(*arguments: object, **more: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], **more)  # type: ignore[arg-type]


def unpacked(page: bytes) -> tuple[dict[str, object], bytes]:
    """The head and the planes of a page's data."""
    found = re.search(rb'<script type="text/plain" id="data" data-size="(\d+)">([A-Za-z0-9+/=]*)</script>', page)
    assert found is not None
    data = zlib.decompress(base64.b64decode(found[2]))
    assert len(data) == int(found[1])
    length = int.from_bytes(data[:4], "little")
    return json.loads(data[4 : 4 + length]), data[4 + length :]


def test_report_writes_beside_the_trace_and_not_over_a_file(recording: Path, tmp_path: Path) -> None:
    trace = tmp_path / "run.tmt"
    trace.write_bytes(recording.read_bytes())
    result = run("report", trace)
    assert result.exit_code == 0 and "Next:" in result.stderr and result.stdout == ""
    page = (tmp_path / "run.html").read_bytes()
    assert page.startswith(b"<!doctype html>")
    refused = run("report", trace)
    assert refused.exit_code == 2 and "--force" in refused.stderr
    assert run("report", trace, "-f", "-q").stderr.count("\n") == 1
    assert (tmp_path / "run.html").read_bytes() == page


def test_report_reads_standard_input_and_writes_standard_output(recording: Path, lifetimes: Path) -> None:
    for path, name in ((recording, "tmt"), (lifetimes, "lifetimes")):
        result = run("report", "-", input=path.read_bytes())
        head, _ = unpacked(result.stdout_bytes)
        assert head["format"] == name and head["source"] == "-"


def test_report_as_json_has_a_version_and_raw_numbers(recording: Path, tmp_path: Path) -> None:
    document = json.loads(run("report", recording, "-o", tmp_path / "a.html", "--json").stdout)
    assert document["version"] == 1 and document["window"] is None
    assert document["nbytes"] == (tmp_path / "a.html").stat().st_size
    cut = json.loads(run("report", recording, "-o", tmp_path / "b.html", "--json", "--window", "5us:").stdout)
    assert cut["window"]["start_ns"] == 5000 and cut["window"]["why"]


@pytest.mark.parametrize("window", ["5", "a:b", "3s:1s", "1h:", "-1:", "99999s:"])
def test_a_window_that_is_none_is_refused_and_nothing_is_written(recording: Path, tmp_path: Path, window: str) -> None:
    for command in (["report", recording, "-o", tmp_path / "a.html"], ["view", recording, "--no-open"]):
        result = run(*command, "--window", window)
        assert result.exit_code == 2 and "--window" in result.stderr and "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_what_is_no_trace_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "no.tmt"
    path.write_bytes(b"\x89TMT\r\n\x1a\nnothing")
    for command in (["report", path], ["view", path, "--no-open"]):
        result = run(*command)
        assert result.exit_code == 2 and "at byte 0" in result.stderr


def test_the_data_have_every_event_of_the_trace(recording: Path) -> None:
    with tm.trace.open(recording) as trace:
        head, planes = unpacked(page_html(payload_of(trace)))
        events = list(trace.events())
        assert head["events"] == len(events) == trace.event_count
        numbers = head["planes"]
        assert isinstance(numbers, list) and len(planes) == len(numbers) * len(events)
        columns = {number: planes[at * len(events) :][: len(events)] for at, number in enumerate(numbers)}
        kinds = list(tm.trace.EventKind)
        assert [kinds[kind - 1] for kind in columns[60]] == [event.kind for event in events]
        zeros = bytes(len(events))
        sizes = [sum(columns.get(16 + byte, zeros)[row] << 8 * byte for byte in range(8)) for row in range(len(events))]
        assert sizes == [event.nbytes for event in events]


def test_the_page_has_nothing_of_a_trace_but_its_data(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,lower,upper,size\n</script><b>evil,0,4,16\n")
    with tm.trace.open(path) as trace:
        page = page_html(payload_of(trace))
    assert b"evil" not in page and page.count(b"</script>") == 2
    assert b"http:" not in page.replace(b"http-equiv", b"") and b"https:" not in page


def test_a_long_trace_is_cut_around_its_peak(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    rows = [f"r{number},{number},{number + 1},8" for number in range(1000)]
    path.write_text("\n".join(["id,lower,upper,size", *rows, "peak,700,705,4096", ""]))
    with tm.trace.open(path) as trace:
        window = window_of(trace, most=200)
        assert window.start_ns < 700 < window.end_ns and "200 of 2,002" in window.why
        payload = payload_of(trace, window)
        assert 100 < payload.events <= 200
        asked = window_of(trace, 100, 900, most=200)
        assert asked.start_ns == 100 and asked.end_ns < 250 and "cut off" in asked.why
        assert max(overview_of(trace).highest) == 4096 + 8
        with pytest.raises(InvalidArgument, match="ends at"):
            window_of(trace, 5000)


def test_a_recording_is_cut_by_its_chunks_and_its_totals(tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    with tm.trace(path) as recording:
        kept = pool.allocate("1MiB", tag="kept")
        for _ in range(30):
            for _ in range(50):
                pool.deallocate(pool.allocate(4096))
            recording.flush()
    del kept
    with tm.trace.open(path) as trace:
        assert sum(count for _, _, count in trace.store.event_chunks()) == trace.event_count  # type: ignore[attr-defined]
        window = window_of(trace, most=1000)
        assert not window.is_whole and payload_of(trace, window).events <= 1000
        assert 0 < payload_of(trace, window_of(trace, most=1)).events < 1000
        assert 0 < payload_of(trace, window_of(trace, window.start_ns + 1, most=1)).events < 1000
        late = window_of(trace, list(trace.events())[trace.event_count // 2].time_ns)
        head, _ = unpacked(page_html(payload_of(trace, late)))
        carried = head["carried"]
        assert isinstance(carried, list) and sum(nbytes for _, nbytes, _ in carried) in (2**20, 2**20 + 4096)


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("1.5s:2s", (1_500_000_000, 2_000_000_000)),
        (":", (0, None)),
        ("7ns:1us", (7, 1000)),
        ("0.25:", (250_000_000, None)),
    ],
)
def test_windows_are_written_with_units(text: str, times: tuple[int, int | None]) -> None:
    assert parse_window(text) == times


def test_a_window_of_a_trace_is_a_window_on_the_page(recording: Path) -> None:
    with tm.trace.open(recording) as trace:
        part = trace.window(trace.duration_ns // 2, trace.duration_ns)
        assert window_of(part)[:2] == (trace.duration_ns // 2, trace.duration_ns)
        assert payload_of(part).events <= payload_of(trace).events
        assert part.bounds == (trace.duration_ns // 2, trace.duration_ns) and window_of(trace).is_whole


def test_a_window_of_lifetimes_is_in_steps(lifetimes: Path, tmp_path: Path) -> None:
    result = run("report", lifetimes, "-o", tmp_path / "a.html", "--window", "2:6", "--json")
    document = json.loads(result.stdout)
    assert document["events"] == 2 and document["window"]["start_ns"] == 2 and document["window"]["end_ns"] == 6
