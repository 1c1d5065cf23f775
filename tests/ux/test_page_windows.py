"""Pages of a part of a trace: they say so, and know what was out before it."""

from pathlib import Path

import pytest

import tensormem as tm
from support.browser import Chromium, OpenedPage
from support.pages import By, Show, live_at, out_at, text_trace
from tensormem.reports.page import page_html, payload_of, window_of
from tensormem.trace import Trace


def shown_at(page: OpenedPage, by: str, time_ns: int) -> dict[str, int]:
    shown: dict[str, int] = page.ask(f"usage('{by}', tensormem.eventAt(argument))", time_ns)
    return {name: nbytes for name, nbytes in shown.items() if nbytes}


@pytest.fixture
def second_half(show: Show, server_trace: Path, recording: Trace) -> OpenedPage:
    return show(server_trace, "--window", f"{recording.duration_ns // 2}ns:")


def test_a_window_says_so(second_half: OpenedPage, recording: Trace) -> None:
    assert "window that was asked for" in second_half.page.locator("#notice").inner_text()
    assert second_half.ask("state()")["is_window"]
    assert second_half.ask("summary()")["from_ns"] == recording.duration_ns // 2
    assert second_half.errors == [] and len(second_half.colors("overview")) > 2


@pytest.mark.parametrize("by", ["space", "tag", "resource"])
def test_what_was_out_before_a_window_is_counted_in_its_groups(
    second_half: OpenedPage, recording: Trace, by: By
) -> None:
    middle = recording.duration_ns // 2
    for part in (0.5, 0.6, 0.9, 1.0):
        time_ns = max(round(recording.duration_ns * part), middle)
        assert shown_at(second_half, by, time_ns) == out_at(recording, time_ns, by)
    assert "alone" not in second_half.page.locator("#notice").inner_text()


def test_blocks_from_before_a_window_are_in_every_view(second_half: OpenedPage, recording: Trace) -> None:
    before = sum(event.time_ns < recording.duration_ns // 2 for event in recording.events())
    second_half.ask("goTo(30)")
    second_half.settle()
    shown = second_half.ask("map()")
    assert (shown["blocks"], shown["nbytes"]) == live_at(recording, before + 30)
    boxes = {tuple(box["path"]): box["nbytes"] for box in second_half.ask("flame()")}
    assert boxes[()] == second_half.ask("summary()")["peak_bytes"]
    second_half.page.locator("#search").fill("weights")
    assert second_half.ask("state()")["found"] == {"blocks": 4, "peak_bytes": 4 * 2**20}
    second_half.page.locator("#blocks tbody tr").first.click()
    facts = second_half.ask("block(argument)", second_half.ask("state()")["selected"])
    wanted = next(block for block in recording.blocks() if block.address == facts["address"])
    assert facts["start_ns"] == wanted.start_ns and facts["start_event"] == -1
    assert "before the window" in second_half.page.locator("#selection").inner_text()
    assert "serve_requests" in second_half.page.locator("#selection .stack").inner_text()


def test_lifetimes_from_before_a_window_are_known_by_name(show: Show, tmp_path: Path) -> None:
    page = show(text_trace(tmp_path / "steps.csv", "a,0,100,16", "b,5,60,8", "c,20,30,4"), "--window", "40:80")
    assert shown_at(page, "tag", 50) == {"a": 16, "b": 8} and shown_at(page, "tag", 70) == {"a": 16}


def test_a_window_without_events_still_knows_what_is_out(show: Show, tmp_path: Path) -> None:
    page = show(text_trace(tmp_path / "steps.csv", "a,0,100,16", "b,5,30,8"), "--window", "40:80")
    assert page.ask("summary()")["events"] == 0 and page.ask("usage('tag', -1)") == {"a": 16}
    assert "No event falls into it" in page.page.locator("#notice").inner_text()
    assert page.ask("map()")["blocks"] == 1 and page.errors == []
    for key in ("ArrowRight", "p", "s", "+", "4", "]", "Escape"):
        page.page.keyboard.press(key)
    page.settle()
    assert page.errors == []


def test_what_is_too_long_ago_is_said_to_be_known_by_resource_alone(
    browser: Chromium, server_trace: Path, recording: Trace, tmp_path: Path
) -> None:
    middle = recording.duration_ns // 2
    with tm.trace.open(server_trace) as trace:
        (tmp_path / "page.html").write_bytes(page_html(payload_of(trace, window_of(trace, middle), look_back=0)))
    page = browser.open((tmp_path / "page.html").as_uri())
    assert "are known by their resource alone" in page.page.locator("#notice").inner_text()
    end = recording.duration_ns
    assert shown_at(page, "resource", end) == out_at(recording, end, "resource")
    by_tag = shown_at(page, "tag", end)
    assert sum(by_tag.values()) == sum(out_at(recording, end, "tag").values())
    assert by_tag["before the window, tag unknown"] >= 4 * 2**20
    boxes = {tuple(box["path"]): box["nbytes"] for box in page.ask("flame()")}
    assert boxes[()] == page.ask("summary()")["peak_bytes"] and page.errors == []
    browser.close_pages()
