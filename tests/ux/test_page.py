"""The page of a trace in a real browser: it opens alone, every view draws, and what it shows is what the trace says."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner

import tensormem as tm
from support.browser import Chromium, OpenedPage, chromium
from tensormem.cli.main import cli
from tensormem.trace import Event, EventKind, Trace

VIEWS = ("usage", "overview", "addresses", "flame")
By = Literal["space", "tag", "resource"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as running:
        yield running


@pytest.fixture(autouse=True)
def _close_pages(browser: Chromium) -> Iterator[None]:
    yield
    browser.close_pages()


def serve_requests(path: Path) -> None:
    """A KV cache in small: caches grow block by block in elastic pages, scratch memory comes and goes in a pool."""
    chance = random.Random(5)
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    elastic = tm.mr.ElasticMemoryResource()
    caches: dict[int, list[tm.mr.DeviceBlock]] = {}
    with tm.trace(path, stacks=True):
        weights = [pool.allocate("1MiB", tag="weights") for _ in range(4)]
        for step in range(120):
            if len(caches) < 6:
                caches[step] = []
            with tm.tag("scratch"):
                scratch = pool.allocate(chance.randrange(1, 200) * 1024)
            for request in list(caches):
                caches[request].append(elastic.allocate(65536, tag="kv-cache"))
                if chance.random() < 0.05:
                    for block in caches.pop(request)[1:]:
                        elastic.deallocate(block)
            pool.deallocate(scratch)
        with pytest.raises(tm.errors.OutOfBudget):
            tm.mr.LimitingResourceAdaptor(pool, "1MiB").allocate("2MiB")
    del weights, caches


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages")
    serve_requests(made / "serving.tmt")
    return made


@pytest.fixture(scope="module")
def recording(folder: Path) -> Iterator[Trace]:
    with tm.trace.open(folder / "serving.tmt") as trace:
        yield trace


def report(trace: Path, output: Path, *options: str) -> Path:
    result = CliRunner().invoke(cli, ["report", str(trace), "-o", str(output), "--force", *options])
    assert result.exit_code == 0, result.output
    return output


@pytest.fixture(scope="module")
def show(browser: Chromium, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., OpenedPage]:
    def opened(trace: Path, *options: str, scheme: Literal["light", "dark"] = "light") -> OpenedPage:
        output = report(trace, tmp_path_factory.mktemp("html") / "page.html", *options)
        return browser.open(output.as_uri(), scheme=scheme)

    return opened


@pytest.fixture
def serving(show: Callable[..., OpenedPage], folder: Path) -> OpenedPage:
    return show(folder / "serving.tmt")


def text_trace(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["id,lower,upper,size", *rows, ""]))
    return path


def out_at(trace: Trace, time_ns: int, by: By) -> Counter[str]:
    """What each group had out at a time, added up event by event."""
    names: dict[By, Callable[[Event], str]] = {
        "space": lambda event: trace.names.space(event.resource),
        "tag": lambda event: event.tag or "untagged",
        "resource": lambda event: trace.names.resource(event.resource),
    }
    out: Counter[str] = Counter()
    for event in trace.events():
        if event.time_ns > time_ns:
            break
        if event.depth == 0 and event.kind in (EventKind.ALLOCATE, EventKind.DEALLOCATE):
            out[names[by](event)] += event.nbytes if event.kind is EventKind.ALLOCATE else -event.nbytes
    return +out


def live_at(trace: Trace, event_number: int) -> tuple[int, int]:
    """(blocks, bytes) that the program had after an event, counted from 0."""
    live: dict[tuple[int, int], int] = {}
    for number, event in enumerate(trace.events()):
        if number > event_number:
            break
        if event.depth == 0 and event.kind is EventKind.ALLOCATE:
            live[event.resource, event.generation] = event.nbytes
        elif event.depth == 0 and event.kind is EventKind.DEALLOCATE:
            live.pop((event.resource, event.generation), None)
    return len(live), sum(live.values())


def test_the_page_opens_from_a_file_and_asks_for_nothing_else(serving: OpenedPage) -> None:
    assert serving.errors == []
    assert [url.partition(":")[0] for url in serving.requests] == ["file"]
    assert serving.page.title() == "serving.tmt - tensormem"


def test_every_view_draws(serving: OpenedPage) -> None:
    for view in VIEWS:
        colors = serving.colors(view)
        assert len(colors) > 2 and sum(colors.values()) > 1000, view
    cache, weights = serving.style("group-0"), serving.style("group-1")
    assert serving.colors("usage")[cache] > 5000 < serving.colors("addresses")[cache]
    assert serving.colors("usage")[weights] > 5000 < serving.colors("addresses")[weights]
    assert serving.page.locator("#blocks tbody tr").count() > 10


@pytest.mark.parametrize("by", ["space", "tag", "resource"])
def test_stacked_heights_are_what_the_trace_says(serving: OpenedPage, recording: Trace, by: By) -> None:
    for part in (0.05, 0.3, 0.5, 0.77, 1.0):
        time_ns = round(recording.duration_ns * part)
        shown = serving.ask(f"usage('{by}', tensormem.eventAt(argument))", time_ns)
        assert {name: nbytes for name, nbytes in shown.items() if nbytes} == out_at(recording, time_ns, by)


def test_the_summary_is_that_of_the_trace(serving: OpenedPage, recording: Trace) -> None:
    summary = serving.ask("summary()")
    peak = recording.peaks("space")[""]
    assert summary["peak_bytes"] == peak.nbytes and summary["events"] == recording.event_count
    left = [block for block in recording.blocks() if block.end_ns is None]
    assert (summary["leaked_blocks"], summary["leaked_bytes"]) == (len(left), sum(block.nbytes for block in left))
    assert summary["failures"] == 1
    assert serving.page.locator("#tiles").inner_text().count("MiB") >= 3


def test_the_chart_is_as_high_as_it_says(serving: OpenedPage) -> None:
    peak = serving.ask("summary()")["peak_event"]
    serving.ask("goTo(0)")
    x, y = serving.ask("xOf(argument)", peak), serving.ask("heightAt(argument)", peak)
    groups = {serving.style(f"group-{number}") for number in range(10)}
    just_below = serving.colors("usage", x - 1, y + 2, 3, 20)
    above = serving.colors("usage", x - 1, 0, 3, max(y - 14, 1))
    assert groups & set(just_below) and not groups & set(above)
