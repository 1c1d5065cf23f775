"""tensormem.trace.replay: a trace through stacks of resources, and the picture of it."""

import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensormem as tm
from support.workloads import cases
from tensormem import errors, mr
from tensormem._core import abstract_driver
from tensormem.reports.replay_plot import replay_svg
from tensormem.streams import Stream
from tensormem.trace import Lifetime, peak_load, plan, read_lifetimes, replay, save_plan, workload_of
from tensormem.trace.stacks import stack_names

MIB = 1 << 20
STEP = [
    Lifetime("weights", 0, 100, 8 * MIB),
    *(Lifetime(f"layer {n}", 1 + n, 99 - n, (n % 5 + 1) * MIB) for n in range(20)),
    *(Lifetime(f"scratch {n}", 2 * n + 1, 2 * n + 3, (n % 3 + 1) * 300_000) for n in range(40)),
]


@pytest.mark.parametrize(
    "stack", ["leaf", "pool", "arena", "binning", "planned", "elastic", "statistics/limiting(1GiB)/pool"]
)
def test_a_trace_fits_where_there_is_room(stack: str) -> None:
    report = replay(STEP, stack, capacity="1GiB")
    assert report.fits and report.failure is None
    assert report.events_done == report.event_count == 2 * len(STEP)
    assert report.peak_live == peak_load(STEP) <= report.peak_reserved <= 1 << 30
    assert report.samples[-1].event == report.event_count and report.samples[-1].live_bytes == 0


def first_over(limit: int) -> tuple[int, Lifetime]:
    """Which event goes over the limit, counted by hand."""
    steps = [(each.lower, 1, each) for each in STEP] + [(each.upper, 0, each) for each in STEP]
    live = 0
    for event, (_, starts, block) in enumerate(sorted(steps, key=lambda step: step[:2])):
        live += block.size if starts else -block.size
        if live > limit:
            return event, block
    raise AssertionError("nothing does")


def test_the_first_block_without_memory_is_named() -> None:
    report = replay(STEP, "leaf", capacity=20 * MIB)
    assert not report.fits and report.failure is not None
    event, block = first_over(20 * MIB)
    assert (report.failure.event, report.failure.name, report.failure.nbytes) == (event, block.id, block.size)
    assert report.failure.error == "OutOfMemory" and report.events_done == event


def test_a_planned_stack_takes_the_height_of_its_plan_and_nothing_else() -> None:
    report = replay(STEP, "planned")
    assert report.counters == {"planned": len(STEP), "fallbacks": 0}
    assert report.peak_reserved == plan(STEP, alignment=256).height
    assert report.fragmentation < 0.01


def test_a_plan_of_a_file_is_followed(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    save_plan(plan(STEP, alignment=256), path)
    assert replay(STEP, f"planned({path})").counters["planned"] == len(STEP)


def test_a_plan_that_does_not_fit_fails_at_the_first_block() -> None:
    report = replay(STEP, "planned", capacity=9 * MIB, time_limit=0)
    assert report.failure is not None and (report.failure.event, report.failure.name) == (0, "weights")


@pytest.mark.parametrize("stack", ["leaf", "pool", "elastic"])
def test_real_memory_serves_it_too(stack: str) -> None:
    report = replay(STEP, stack, capacity="256MiB", real=True)
    assert report.fits and report.peak_reserved >= report.peak_live == peak_load(STEP)


@pytest.mark.parametrize("capacity", [None, "256MiB", 32 * MIB, 20 * MIB])
@pytest.mark.parametrize("stack", ["elastic", "pool(4MiB)/elastic", "statistics/limiting(1GiB)/elastic"])
def test_elastic_pages_are_counted_the_same_without_memory_and_with(stack: str, capacity: int | str | None) -> None:
    streams = [number % 3 for number in range(len(STEP))] if stack == "elastic" else None
    abstract, real = (replay(STEP, stack, capacity=capacity, real=real, streams=streams) for real in (False, True))
    assert abstract == real
    assert abstract.fits == (capacity in (None, "256MiB")) and abstract.peak_reserved % (2 * MIB) == 0


def test_an_elastic_stack_without_memory_fails_at_the_block_that_has_no_page_left() -> None:
    blocks = [Lifetime(name, 0, 9, 8 * MIB) for name in ("a", "b", "c")] + [Lifetime("too much", 1, 9, MIB)]
    report = replay(blocks, "elastic", capacity="24GiB")
    assert report.fits and report.peak_reserved == 26 * MIB
    failure = replay(blocks, "elastic", capacity=25 * MIB).failure
    assert failure is not None and (failure.event, failure.name, failure.error) == (3, "too much", "OutOfMemory")
    assert "0 are free" in failure.why  # of the last MiB no page can be made
    assert (
        replay(blocks, "elastic(24MiB)", capacity="1GiB").failure
        == replay(blocks, "elastic", capacity=24 * MIB).failure
    )
    assert replay(blocks, "elastic(1GiB)", capacity=24 * MIB).failure is not None


def test_elastic_pages_serve_a_block_for_which_a_pool_has_no_hole() -> None:
    blocks = [Lifetime(str(n), 0, 10 if n % 2 else 5, 2 * MIB) for n in range(16)] + [Lifetime("large", 5, 9, 16 * MIB)]
    assert replay(blocks, "elastic", capacity=32 * MIB).fits
    assert not replay(blocks, "pool(32MiB)", capacity=32 * MIB).fits


def test_more_than_any_machine_has_is_replayed_on_elastic_pages() -> None:
    report = replay([Lifetime("model", 0, 2, 5 << 38)], "elastic")
    assert report.fits and report.peak_reserved == 5 << 38


def test_an_elastic_replay_without_memory_leaves_nothing_behind() -> None:
    driver = abstract_driver()
    before = driver.memory_info()
    replay(STEP, "elastic", capacity=20 * MIB)
    assert driver.memory_info() == before


def test_abstract_memory_says_that_nobody_can_touch_it() -> None:
    resource = mr.ElasticMemoryResource(abstract_driver())
    block = resource.allocate(4096)
    assert not resource.is_host_accessible and not resource.is_device_accessible and resource.driver.simulated
    with pytest.raises((BufferError, errors.TensormemError)):
        memoryview(block)
    resource.deallocate(block)


@pytest.mark.parametrize("workload", cases("torch/*512_training.csv", "somas/resnet*.csv"), indirect=True)
def test_lifetimes_of_models_are_replayed_on_elastic_pages(workload: Path) -> None:
    step = read_lifetimes(workload)
    report = replay(step, "elastic")
    assert report.fits and report.peak_live == peak_load(step) <= report.peak_reserved
    assert replay(step, "elastic", capacity=report.peak_reserved).fits
    failure = replay(step, "elastic", capacity=report.peak_reserved - 1).failure
    assert failure is not None and failure.name in {each.id for each in step}


def test_a_recording_is_replayed_with_its_names_and_streams(tmp_path: Path) -> None:
    resource = mr.HostMemoryResource()
    with Stream(resource.driver) as stream, tm.trace(tmp_path / "run.tmt"):
        kept = resource.allocate(3 * MIB, stream, tag="cache")
        resource.deallocate(resource.allocate(MIB, tag="scratch"))
        resource.deallocate(kept, stream)
    with tm.trace.open(tmp_path / "run.tmt") as trace:
        workload = workload_of(trace, "main")
        assert [each.id for each in workload.lifetimes] == ["cache #0", "scratch #1"]
        assert workload.streams is not None and workload.streams[0] != workload.streams[1]
        assert workload_of(trace, "gpu:0").lifetimes == []
        assert replay(trace, "leaf").peak_live == 4 * MIB
        assert replay(trace, "elastic") == replay(trace, "elastic", real=True)
        failure = replay(trace, "pool", capacity=2 * MIB).failure
    assert failure is not None and failure.name == "cache #0"


@pytest.mark.parametrize("workload", cases("torch/*.pickle"), indirect=True)
@pytest.mark.parametrize("stack", ["pool", "elastic"])
def test_a_pytorch_snapshot_is_replayed(stack: str, workload: Path) -> None:
    with tm.trace.open(workload) as trace:
        report = replay(trace, stack, capacity="24GiB")
    assert report.fits and 0 < report.peak_live <= report.peak_reserved


def test_streams_are_kept_apart_and_closed() -> None:
    before = threading.active_count()
    report = replay(STEP, "pool", streams=[number % 3 for number in range(len(STEP))])
    assert report.fits and threading.active_count() == before
    with pytest.raises(errors.InvalidArgument):
        replay(STEP, "pool", streams=[0])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 5000)), max_size=30))
def test_whatever_is_replayed_the_peak_is_the_load(rows: list[tuple[int, int, int]]) -> None:
    lifetimes = [Lifetime(str(n), low, low + life, size) for n, (low, life, size) in enumerate(rows)]
    for stack in ("leaf", "pool", "planned"):
        report = replay(lifetimes, stack, time_limit=1)
        assert report.fits and report.peak_live == peak_load(lifetimes)
    assert replay(lifetimes, "leaf").peak_reserved == peak_load(lifetimes)


@pytest.mark.parametrize(
    ("stack", "complaint"),
    [
        ("", "'' in '' is not one of aligned, arena"),
        ("pond", "'pond' in 'pond' is not one of"),
        ("pool/", "is not one of"),
        ("pool(1MiB,2MiB,3MiB)", "at most 2 values"),
        ("limiting/pool", "limiting() in"),
        ("elastic/pool", "the last part"),
        ("elastic(a lot)", "elastic(a lot) in"),
        ("elastic(1MiB,2MiB)", "at most 1 values"),
        ("binning(3)", "cannot be made"),
        ("fixed(0)", "cannot be made"),
    ],
)
def test_a_stack_that_cannot_be_built_is_refused(stack: str, complaint: str) -> None:
    text = stack if "last part" not in complaint else "pool/elastic/pool"
    with pytest.raises(errors.InvalidArgument) as caught:
        replay(STEP, text)
    assert complaint in str(caught.value)


def test_the_names_of_the_parts_are_listed() -> None:
    assert {"pool", "arena", "binning", "elastic", "fixed", "planned", "limiting"} <= set(stack_names())


def test_the_picture_is_whole_and_has_every_stack() -> None:
    reports = [replay(STEP, stack, capacity="128MiB") for stack in ("pool", "leaf", "fixed", "limiting(9MiB)/pool")]
    svg = ElementTree.fromstring(replay_svg(reports, 128 * MIB))
    texts = [element.text or "" for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"pool", "leaf", "limiting(9MiB)/pool (does not fit)", "capacity 128 MiB"} <= set(texts)
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}polyline"))) == 4
    assert ElementTree.fromstring(replay_svg([])) is not None
