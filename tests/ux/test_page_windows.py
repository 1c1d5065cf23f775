"""Pages of a part of a trace: they say so, and know what was out before it."""

from pathlib import Path

from support.pages import Show, out_at
from tensormem.trace import Trace


def test_a_window_says_so_and_counts_what_was_out_before(show: Show, server_trace: Path, recording: Trace) -> None:
    middle = recording.duration_ns // 2
    page = show(server_trace, "--window", f"{middle}ns:")
    assert "window that was asked for" in page.page.locator("#notice").inner_text()
    assert page.ask("state()")["is_window"] and page.ask("summary()")["from_ns"] == middle
    for part in (0.5, 0.6, 0.9, 1.0):
        time_ns = max(round(recording.duration_ns * part), middle)
        for by in ("space", "resource"):
            shown = page.ask(f"usage('{by}', tensormem.eventAt(argument))", time_ns)
            assert {name: nbytes for name, nbytes in shown.items() if nbytes} == out_at(recording, time_ns, by)
    assert page.errors == [] and len(page.colors("overview")) > 2
