"""The page of a trace in a real browser: it opens alone, every view draws, and what it shows is what the trace says."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner

import tensormem as tm
from support.browser import Chromium, OpenedPage, chromium
from support.traces import real_data
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
    weights, cache = serving.style("group-0"), serving.style("group-1")
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


def test_blocks_are_drawn_one_by_one_and_can_be_picked(serving: OpenedPage) -> None:
    serving.page.keyboard.press("4")
    serving.settle()
    assert serving.ask("state()")["by"] == "block"
    peak = serving.ask("summary()")["peak_event"]
    box = serving.page.locator("#usage").bounding_box()
    assert box is not None
    serving.page.mouse.click(box["x"] + serving.ask("xOf(argument)", peak), box["y"] + box["height"] - 40)
    state = serving.ask("state()")
    picked = serving.ask("block(argument)", state["selected"])
    assert picked["tag"] == "weights" and picked["start_event"] <= state["moment"] < picked["end_event"]


def test_keys_step_through_events_and_the_map_follows(serving: OpenedPage, recording: Trace) -> None:
    serving.ask("goTo(100)")
    for key, moves in (
        ("ArrowRight", 1),
        ("Shift+ArrowRight", 100),
        ("ArrowLeft", -1),
        ("End", 10**9),
        ("Home", -(10**9)),
    ):
        before = serving.ask("state()")["moment"]
        serving.page.keyboard.press(key)
        serving.settle()
        moment = serving.ask("state()")["moment"]
        assert moment == min(max(before + moves, 0), recording.event_count - 1)
        shown = serving.ask("map()")
        assert (shown["blocks"], shown["nbytes"]) == live_at(recording, moment)
        assert f"{moment + 1:,} of" in serving.page.locator("#moment").inner_text()


def test_holes_are_what_pools_and_pages_have_beside_the_blocks(serving: OpenedPage) -> None:
    summary = serving.ask("summary()")
    serving.ask("goTo(argument)", summary["peak_event"])
    serving.settle()
    shown = serving.ask("map()")
    assert shown["holes"] > 0 and shown["regions"] >= 2
    assert shown["nbytes"] + shown["holes"] <= summary["held_bytes"]


def test_a_search_marks_blocks_in_every_view(serving: OpenedPage, recording: Trace) -> None:
    serving.page.keyboard.press("/")
    serving.page.keyboard.type("kv-ca")
    wanted = [block for block in recording.blocks() if block.tag == "kv-cache"]
    found = serving.ask("state()")["found"]
    assert found == {"blocks": len(wanted), "peak_bytes": recording.peaks("tag")["kv-cache"].nbytes}
    accent = serving.style("accent")
    assert serving.colors("usage")[accent] > 500
    assert serving.style("group-0") not in serving.colors("addresses")  # the weights are pale now
    tags = {serving.ask("block(argument)", block)["tag"] for block in serving.ask("table()")}
    assert tags == {"kv-cache"}
    serving.page.keyboard.press("Escape")
    assert serving.ask("state()")["found"] is None


def test_a_search_knows_calls_sizes_and_addresses(serving: OpenedPage, recording: Trace) -> None:
    blocks = list(recording.blocks())
    address = blocks[0].address
    there = [block for block in blocks if block.address <= address < block.address + block.nbytes]
    large = [block for block in blocks if block.nbytes > 128 * 1024]
    for text, wanted in (
        ("serve_requests", blocks),
        (">128KiB", large),
        (hex(address), there),
        ("nothing like it", []),
    ):
        serving.page.locator("#search").fill(text)
        assert serving.ask("state()")["found"]["blocks"] == len(wanted), text
    assert "No block of these is marked" in serving.page.locator("#blocks").inner_text()


def test_a_block_selected_in_the_table_is_marked_everywhere(serving: OpenedPage) -> None:
    accent = serving.style("accent")
    serving.ask("stackBy('tag')")
    before = {view: serving.colors(view).get(accent, 0) for view in VIEWS}
    serving.page.locator("#blocks tbody tr").first.click()
    block = serving.ask("state()")["selected"]
    assert block == serving.ask("table()")[0]
    for view in ("usage", "addresses", "flame"):
        assert serving.colors(view).get(accent, 0) > before[view] + 20, view
    assert serving.page.locator("#blocks tr.selected").count() == 1
    assert serving.ask("block(argument)", block)["tag"] in serving.page.locator("#selection").inner_text()
    assert "serve_requests" in serving.page.locator("#selection .stack").inner_text()


def test_a_block_selected_in_the_map_is_marked_in_the_table(serving: OpenedPage) -> None:
    serving.page.locator("#table [data-value=now]").click()
    serving.settle()
    block = serving.ask("table()")[0]
    (place, *_) = serving.ask("where(argument)", block)
    box = serving.page.locator("#addresses").bounding_box()
    assert box is not None
    serving.page.mouse.click(box["x"] + place["x"] + place["width"] / 2, box["y"] + place["y"] + 5)
    assert serving.ask("state()")["selected"] == block
    assert serving.page.locator("#blocks tr.selected").get_attribute("data-block") == str(block)


def test_the_table_is_worked_with_keys(serving: OpenedPage) -> None:
    rows = serving.ask("table()")
    serving.page.locator("#blocks tbody tr").first.focus()
    serving.page.keyboard.press("ArrowDown")
    assert serving.ask("state()")["selected"] == rows[1]
    serving.page.keyboard.press("Enter")
    assert serving.ask("state()")["moment"] == serving.ask("block(argument)", rows[1])["start_event"]


def test_the_flame_graph_adds_up(serving: OpenedPage, recording: Trace) -> None:
    boxes = {tuple(box["path"]): box for box in serving.ask("flame()")}
    peak = recording.peaks("space")[""]
    assert boxes[()]["nbytes"] == boxes[("main",)]["nbytes"] == peak.nbytes
    tags = out_at(recording, peak.time_ns, "tag")
    assert {path[2]: box["nbytes"] for path, box in boxes.items() if len(path) == 3} == tags
    serving.page.locator("#flame-by [data-value=stack]").click()
    serving.settle()
    assert any("serve_requests" in box["path"][-1] for box in serving.ask("flame()") if box["path"])
    serving.page.locator("#flame-by [data-value=tag]").click()
    serving.settle()
    chosen = next(box for box in serving.ask("flame()") if box["path"][2:] == ["weights"])
    flame = serving.page.locator("#flame")
    flame.click(position={"x": chosen["x"] + 5, "y": chosen["y"] + 5})
    assert serving.ask("state()")["found"]["blocks"] == 4


def test_the_flame_graph_is_worked_with_keys(serving: OpenedPage) -> None:
    serving.page.locator("#flame").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowDown", "Enter"):
        serving.page.keyboard.press(key)
    found = serving.ask("state()")["found"]
    assert found["blocks"] > 0 and "kv-cache" in serving.page.locator("#readout").inner_text()
    marked = {serving.ask("block(argument)", block)["tag"] for block in serving.ask("table()")}
    assert marked == {"kv-cache"}


def test_counters_of_bytes_can_be_shown_as_lines(serving: OpenedPage) -> None:
    row = serving.page.locator("#legend button", has_text="process.resident_bytes")
    before = serving.colors("usage")
    assert "dimmed" in (row.get_attribute("class") or "")
    row.click()
    assert serving.colors("usage") != before and serving.errors == []


def test_neighbours_in_the_map_are_selected_with_keys(serving: OpenedPage) -> None:
    chosen = []
    for _ in range(4):
        serving.page.keyboard.press("]")
        chosen.append(serving.ask("block(argument)", serving.ask("state()")["selected"])["address"])
    assert chosen == sorted(chosen) and len(set(chosen)) == 4
    serving.page.keyboard.press("[")
    assert serving.ask("block(argument)", serving.ask("state()")["selected"])["address"] == chosen[-2]


def test_the_chart_zooms_by_drawing_over_it_and_by_keys(serving: OpenedPage) -> None:
    whole = serving.ask("state()")
    box = serving.page.locator("#usage").bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2
    serving.page.mouse.move(middle, box["y"] + 100)
    serving.page.mouse.down()
    serving.page.mouse.move(middle + 60, box["y"] + 100, steps=3)
    serving.page.mouse.up()
    zoomed = serving.ask("state()")
    assert whole["from"] < zoomed["from"] < zoomed["to"] < whole["to"]
    frames = serving.ask("frames()")
    serving.page.keyboard.press("d")
    serving.settle()
    moved = serving.ask("state()")
    assert moved["from"] > zoomed["from"] and serving.ask("frames()") > frames
    assert moved["to"] - moved["from"] == pytest.approx(zoomed["to"] - zoomed["from"])
    serving.page.keyboard.press("0")
    assert [serving.ask("state()")[name] for name in ("from", "to")] == [whole["from"], whole["to"]]
    serving.page.locator("#axis [data-value=events]").click()
    serving.settle()
    assert serving.ask("state()")["to"] == serving.ask("summary()")["events"] and serving.errors == []


def test_light_and_dark_follow_the_system_and_the_button(show: Callable[..., OpenedPage], folder: Path) -> None:
    page = show(folder / "serving.tmt", scheme="dark")
    dark = page.style("panel")
    assert page.ask("state()")["theme"] == "dark" and page.style("group-0") in page.colors("usage")
    page.page.keyboard.press("t")
    assert page.ask("state()")["theme"] == "light" and page.style("panel") != dark
    assert page.style("group-0") in page.colors("usage")
    page.page.locator("#theme").click()
    assert page.style("panel") == dark
    assert page.errors == []


def test_a_pytorch_snapshot_is_shown(show: Callable[..., OpenedPage]) -> None:
    path = real_data("torch", "gpt_medium_128_inference_snapshot.pickle")
    page = show(path)
    with tm.trace.open(path) as trace:
        assert page.ask("summary()")["peak_bytes"] == trace.peaks("space")[""].nbytes
        middle = trace.duration_ns // 2
        assert page.ask("usage('space', tensormem.eventAt(argument))", middle) == out_at(trace, middle, "space")
    assert page.ask("map()")["holes"] > 0 and page.errors == []
    assert all(len(page.colors(view)) > 2 for view in VIEWS)


@pytest.mark.parametrize("name", ["somas/resnet50.csv", "torch/gpt_medium_512_inference.csv"])
def test_lifetimes_without_addresses_are_shown(show: Callable[..., OpenedPage], name: str) -> None:
    path = real_data(*name.split("/"))
    page = show(path)
    with tm.trace.open(path) as trace:
        assert page.ask("summary()")["peak_bytes"] == tm.trace.peak_load(trace.lifetimes())
    assert "no addresses" in page.page.locator("#state").inner_text()
    assert page.errors == [] and all(len(page.colors(view)) > 2 for view in VIEWS)


def test_an_empty_trace_says_so(show: Callable[..., OpenedPage], tmp_path: Path) -> None:
    page = show(text_trace(tmp_path / "empty.csv"))
    assert "empty" in page.page.locator("#notice").inner_text()
    for key in ("ArrowRight", "p", "s", "+", "4", "t", "Escape"):
        page.page.keyboard.press(key)
    page.settle()
    assert page.ask("summary()")["events"] == 0 and page.errors == []


def test_a_trace_of_one_block_and_of_one_event_is_shown(show: Callable[..., OpenedPage], tmp_path: Path) -> None:
    page = show(text_trace(tmp_path / "one.csv", "a,0,4,16"))
    assert page.ask("usage('tag', 0)") == {"a": 16} and page.errors == []
    with tm.trace(tmp_path / "counter.tmt"):
        pass
    page = show(tmp_path / "counter.tmt")
    assert page.ask("summary()")["peak_bytes"] == 0 and page.errors == []


HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>"


def test_names_are_text_and_never_html(show: Callable[..., OpenedPage], tmp_path: Path) -> None:
    path = tmp_path / "<img src=x onerror=alert(2)>.tmt"
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    with tm.trace(path, stacks=True):
        code = compile("kept = [pool.allocate(100, tag=tag)]", f"{HOSTILE}.py", "exec")
        for tag in (HOSTILE, '"><svg onload=alert(3)>', "'-alert(4)-'", "${alert(5)}", "\u202e\x00"):
            exec(code, {"pool": pool, "tag": tag})
    page = show(path)
    page.page.locator("#blocks tbody tr").first.click()
    page.page.locator("#search").fill("<img")
    page.page.locator("#usage").hover(position={"x": 400, "y": 150})
    page.settle()
    assert HOSTILE in page.page.locator("#blocks").inner_text()
    assert page.page.locator("img, svg, iframe, [onerror], [onload]").count() == 0
    assert page.page.locator("script").count() == 1 and page.errors == []
    assert [url.partition(":")[0] for url in page.requests] == ["file"]


def test_numbers_past_all_bounds_neither_hang_nor_break_the_page(
    show: Callable[..., OpenedPage], tmp_path: Path
) -> None:
    path = tmp_path / "wild.csv"
    rows = ["1,00:00:00.000001,allocate,0xffffffffffffff00,9223372036854775807,0x0"]
    rows += [f"2,00:00:0{number}.000001,allocate,0x{number}{'f' * 15},100,0xffffffffffffffff" for number in range(1, 9)]
    rows += ["999999999999999999,23:59:59.999999999,free,0x1fffffffffffffff,100,0x0"]
    path.write_text("\n".join(["Thread,Time,Action,Pointer,Size,Stream", *rows, ""]))
    page = show(path)
    for key in ("4", "+", "+", "+", "End", "Home", "s", "]", "0"):
        page.page.keyboard.press(key)
        page.settle()
    assert page.ask("summary()")["events"] == 10 and page.errors == []
    assert "thread 999999999999999999" in page.page.evaluate("(tensormem.goTo(9), document.body.innerText)")


def test_the_policy_of_the_page_stops_what_is_not_ours(serving: OpenedPage) -> None:
    serving.page.evaluate(
        """() => {
          const made = document.createElement("img");
          made.setAttribute("onerror", "window.broken = 1");
          made.src = "http://127.0.0.1:9/x.png";
          document.body.append(made);
          const script = document.createElement("script");
          script.textContent = "window.broken = 2";
          document.body.append(script);
        }"""
    )
    assert serving.page.evaluate("window.broken") is None
    assert sum("Content Security Policy" in said for said in serving.errors) >= 2


def test_a_window_says_so_and_counts_what_was_out_before(
    show: Callable[..., OpenedPage], folder: Path, recording: Trace
) -> None:
    middle = recording.duration_ns // 2
    page = show(folder / "serving.tmt", "--window", f"{middle}ns:")
    assert "window that was asked for" in page.page.locator("#notice").inner_text()
    assert page.ask("state()")["is_window"] and page.ask("summary()")["from_ns"] == middle
    for part in (0.5, 0.6, 0.9, 1.0):
        time_ns = max(round(recording.duration_ns * part), middle)
        for by in ("space", "resource"):
            shown = page.ask(f"usage('{by}', tensormem.eventAt(argument))", time_ns)
            assert {name: nbytes for name, nbytes in shown.items() if nbytes} == out_at(recording, time_ns, by)
    assert page.errors == [] and len(page.colors("overview")) > 2


def test_events_of_several_threads_are_put_in_order(show: Callable[..., OpenedPage], tmp_path: Path) -> None:
    path = tmp_path / "threads.tmt"
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())

    def work(name: str) -> None:
        for _ in range(200):
            blocks = [pool.allocate(1024 * (1 + number), tag=name) for number in range(4)]
            for block in blocks:
                pool.deallocate(block)

    with tm.trace(path, flush_interval=0.001):
        threads = [threading.Thread(target=work, args=(f"worker {number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    page = show(path)
    with tm.trace.open(path) as trace:
        times = [event.time_ns for event in trace.events()]
        for time_ns in times[:: len(times) // 20]:
            shown = page.ask("usage('tag', tensormem.eventAt(argument))", time_ns)
            assert {name: nbytes for name, nbytes in shown.items() if nbytes} == out_at(trace, time_ns, "tag")
        assert page.ask("summary()")["peak_bytes"] == trace.peaks("space")["main"].nbytes
    assert page.ask("summary()")["leaked_blocks"] == 0


def test_a_recording_that_was_cut_off_says_so(show: Callable[..., OpenedPage], folder: Path, tmp_path: Path) -> None:
    data = (folder / "serving.tmt").read_bytes()
    (tmp_path / "cut.tmt").write_bytes(data[: len(data) * 9 // 10])
    page = show(tmp_path / "cut.tmt")
    assert "cut off" in page.page.locator("#notice").inner_text() and page.errors == []


def test_a_million_events_are_shown_as_they_are(show: Callable[..., OpenedPage], tmp_path: Path) -> None:
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    names = [f"layer {number}" for number in range(20)]
    with tm.trace(tmp_path / "long.tmt"):
        live = [pool.allocate(4096, tag="weights") for _ in range(64)]
        for number in range(500_000):
            live.append(pool.allocate(256 + 64 * (number % 100), tag=names[number % 20]))
            pool.deallocate(live.pop(64) if number > 300 else live.pop())
    page = show(tmp_path / "long.tmt", "--most", "2000000")
    with tm.trace.open(tmp_path / "long.tmt") as trace:
        assert page.ask("summary()")["events"] == trace.event_count > 1_000_000
        peak = trace.peaks("space")["main"]
        assert page.ask("summary()")["peak_bytes"] == peak.nbytes
        at_peak = page.ask("usage('tag', tensormem.summary().peak_event)")
    assert sum(at_peak.values()) == peak.nbytes and at_peak["weights"] == 64 * 4096
    for key in ("+", "+", "d", "a", "4", "ArrowRight", "0"):
        page.page.keyboard.press(key)
        page.settle()
    assert page.errors == [] and len(page.colors("usage")) > 10
