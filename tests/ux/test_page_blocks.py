"""The chart block by block: exact where there is room, and never more work than the picture has pixels."""

from pathlib import Path
from typing import Any

import pytest

import tensormem as tm
from support.browser import OpenedPage
from support.pages import Show, text_trace
from tensormem.trace import EventKind, Trace

PLOT_BOTTOM = 24  # pixels below the chart, where its axis is
FEW = 2000  # blocks less than a pixel high that may still have bands of their own


@pytest.fixture(scope="module")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "long.tmt"
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    names = [f"layer {number}" for number in range(20)]
    with tm.trace(path):
        live = [pool.allocate(4096, tag="weights") for _ in range(64)]
        for number in range(501_000):
            live.append(pool.allocate(256 + 64 * (number % 100), tag=names[number % 20]))
            if number >= 300:
                pool.deallocate(live.pop(64))
    return path


def block_by_block(page: OpenedPage) -> OpenedPage:
    page.page.keyboard.press("4")
    page.settle()
    return page


def stacked_at(trace: Trace, event_number: int) -> list[tuple[int, int]]:
    """(address, bytes) of the program's blocks after an event, the oldest first."""
    live: dict[tuple[int, int], tuple[int, int]] = {}
    for number, event in enumerate(trace.events()):
        if number > event_number:
            break
        if event.depth == 0 and event.kind is EventKind.ALLOCATE:
            live[event.resource, event.generation] = event.address, event.nbytes
        elif event.depth == 0 and event.kind is EventKind.DEALLOCATE:
            live.pop((event.resource, event.generation), None)
    return list(live.values())


def show_part(page: OpenedPage, part: float) -> dict[str, Any]:
    """Zooms into a part of the whole, and gives what the picture was made of."""
    page.page.keyboard.press("0")
    whole = page.ask("state()")
    middle, half = (whole["from"] + whole["to"]) / 2, (whole["to"] - whole["from"]) * part / 2
    page.ask("zoom(...argument)", [middle - half, middle + half])
    page.settle()
    facts: dict[str, Any] = page.ask("bands()")
    return facts


def test_blocks_are_drawn_one_by_one_and_can_be_picked(serving: OpenedPage) -> None:
    block_by_block(serving)
    assert serving.ask("state()")["by"] == "block"
    peak = serving.ask("summary()")["peak_event"]
    box = serving.page.locator("#usage").bounding_box()
    assert box is not None
    serving.page.mouse.click(box["x"] + serving.ask("xOf(argument)", peak), box["y"] + box["height"] - 40)
    state = serving.ask("state()")
    picked = serving.ask("block(argument)", state["selected"])
    assert picked["tag"] == "weights" and picked["start_event"] <= state["moment"] < picked["end_event"]


def test_zoomed_in_every_block_is_where_its_bytes_are(serving: OpenedPage, recording: Trace) -> None:
    block_by_block(serving)
    serving.page.locator("#axis [data-value=events]").click()
    first = 40
    serving.ask("zoom(...argument)", [first, first + 20])
    serving.settle()
    bottom = serving.page.evaluate("document.getElementById('usage').clientHeight") - PLOT_BOTTOM
    checked = 0
    for event in range(first, first + 20):
        blocks = stacked_at(recording, event)
        x = serving.ask("xOf(argument)", event + 0.5)
        scale = (bottom - serving.ask("heightAt(argument)", event)) / sum(nbytes for _, nbytes in blocks)
        below = 0
        for address, nbytes in blocks:
            if nbytes * scale >= 3:
                found = serving.ask("blockAt(...argument)", [x, bottom - (below + nbytes / 2) * scale])
                facts = serving.ask("block(argument)", found)
                assert (facts["address"], facts["nbytes"]) == (address, nbytes)
                checked += 1
            below += nbytes
    assert checked > 50
    assert serving.ask("blockAt(...argument)", [serving.ask("xOf(argument)", first + 0.5), 5]) == -1


def crowd(path: Path, *, large: int) -> Path:
    """Forty thousand small blocks that are out at once, and a few large ones."""
    rows = [f"large-{number},{number * 10},{number * 10 + 100},1048576" for number in range(large)]
    small = [f"small-{number},{number // 400},{200 + number // 400},256" for number in range(40_000)]
    return text_trace(path, *rows, *small)


def test_blocks_lower_than_a_pixel_are_one_band_for_each_group(show: Show, tmp_path: Path) -> None:
    page = block_by_block(show(crowd(tmp_path / "mixed.csv", large=10)))
    facts = page.ask("bands()")
    assert facts["blocks"] == 10 and facts["boxes"] <= facts["columns"] * facts["rows"]
    oldest = next(block for block in range(40_010) if page.ask("block(argument)", block)["tag"] == "large-0")
    x = page.ask("xOf(argument)", page.ask("eventAt(50)"))
    box = page.page.locator("#usage").bounding_box()
    assert box is not None
    assert page.ask("blockAt(...argument)", [x, box["height"] - PLOT_BOTTOM - 5]) == oldest
    top = page.ask("heightAt(argument)", page.ask("eventAt(150)"))
    x = page.ask("xOf(argument)", page.ask("eventAt(150)"))
    assert page.ask("blockAt(...argument)", [x, top + 2]) == -1
    page.page.mouse.move(box["x"] + x, box["y"] + top + 2)
    assert "smaller blocks, " in page.page.locator("#readout").inner_text()


def test_a_selected_block_has_a_band_however_small_it_is(show: Show, tmp_path: Path) -> None:
    page = block_by_block(show(crowd(tmp_path / "small.csv", large=0)))
    before = page.ask("bands()")["blocks"]
    page.ask("select(2500)")
    page.settle()
    assert page.ask("bands()")["blocks"] == before + 1


def test_the_map_of_a_crowd_draws_a_pixel_once(show: Show, tmp_path: Path) -> None:
    page = show(crowd(tmp_path / "small.csv", large=0))
    page.ask("goTo(tensormem.eventAt(150))")
    page.settle()
    shown = page.ask("map()")
    assert (shown["blocks"], shown["nbytes"]) == (40_000, 40_000 * 256)
    canvas = page.page.locator("#addresses").bounding_box()
    assert canvas is not None and shown["boxes"] <= canvas["width"] * canvas["height"] / 11
    (place, *_) = page.ask("where(20000)")
    page.page.mouse.click(canvas["x"] + place["x"] + place["width"] / 2, canvas["y"] + place["y"] + 3)
    assert page.ask("where(argument)", page.ask("state()")["selected"])[0]["x"] == pytest.approx(place["x"], abs=1)


def test_the_work_of_a_picture_of_a_million_events_is_that_of_its_pixels(show: Show, long_trace: Path) -> None:
    page = block_by_block(show(long_trace, "--most", "2000000"))
    blocks = page.ask("summary()")["events"] / 2
    for part in (1, 0.25, 0.01, 0.0001):
        facts = show_part(page, part)
        columns, rows = facts["columns"], facts["rows"]
        assert facts["boxes"] <= columns * rows, part
        assert facts["steps"] <= columns * (rows + FEW), part
        assert facts["visited"] <= blocks * part + 20_000, part
    assert 364 <= facts["blocks"] <= FEW  # zoomed in that far, every block that is out has its own
    assert page.errors == []


def test_the_picture_is_kept_while_the_pointer_moves(serving: OpenedPage) -> None:
    block_by_block(serving)
    before, frames = serving.ask("pictures()"), serving.ask("frames()")
    for x in (200, 300, 400):
        serving.page.locator("#usage").hover(position={"x": x, "y": 100})
        serving.settle()
    assert serving.ask("frames()") > frames and serving.ask("pictures()") == before
    serving.ask("select(3)")
    serving.settle()
    assert serving.ask("pictures()") == before + 1


def test_a_million_events_are_shown_as_they_are(show: Show, long_trace: Path) -> None:
    page = show(long_trace, "--most", "2000000")
    with tm.trace.open(long_trace) as trace:
        assert page.ask("summary()")["events"] == trace.event_count > 1_000_000
        peak = trace.peaks("space")["main"]
        assert page.ask("summary()")["peak_bytes"] == peak.nbytes
        at_peak = page.ask("usage('tag', tensormem.summary().peak_event)")
    assert sum(at_peak.values()) == peak.nbytes and at_peak["weights"] == 64 * 4096
    for key in ("+", "+", "d", "a", "4", "ArrowRight", "0"):
        page.page.keyboard.press(key)
        page.settle()
    assert page.errors == [] and len(page.colors("usage")) > 10
