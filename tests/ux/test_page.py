"""The page of a trace in a real browser: it opens alone, every view draws, and what it shows is what the trace says."""

from pathlib import Path

import pytest

from support.browser import OpenedPage
from support.pages import VIEWS, By, Show, live_at, out_at
from tensormem.trace import Trace


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


def test_light_and_dark_follow_the_system_and_the_button(show: Show, server_trace: Path) -> None:
    page = show(server_trace, scheme="dark")
    dark = page.style("panel")
    assert page.ask("state()")["theme"] == "dark" and page.style("group-0") in page.colors("usage")
    page.page.keyboard.press("t")
    assert page.ask("state()")["theme"] == "light" and page.style("panel") != dark
    assert page.style("group-0") in page.colors("usage")
    page.page.locator("#theme").click()
    assert page.style("panel") == dark
    assert page.errors == []
