"""Question: how soon is a trace on the screen, and does it stay smooth?

The peer is the plain way to make such a page: every event as JSON in the file. It is only parsed, and draws nothing.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import tensormem as tm
from harness import Metric, Question, Row, summarise
from tensormem.reports.page import page_of

EVENTS = (100_000, 1_000_000)
ROUNDS = 5
LIVE = 500
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PAN = """async (by) => {
  if (by) tensormem.stackBy(by);
  document.getElementById("zoom-all").click();
  const { from, to } = tensormem.state();
  const span = (to - from) / 4;
  const times = [];
  for (let step = 0; step < 40; step += 1) {
    const start = performance.now();
    tensormem.zoom(from + (span * step) / 40, from + span + (span * step) / 40);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - start);
  }
  return times.sort((one, two) => one - two)[20];
}"""


def record(path: Path, events: int) -> None:
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    tags = [f"layer {number}" for number in range(24)]
    with tm.trace(path) as recording:
        live: list[tm.mr.DeviceBlock] = []
        for number in range((events + LIVE) // 2):
            live.append(pool.allocate(256 << number * 7 % 11, tag=tags[number % 24]))
            if len(live) > LIVE:
                pool.deallocate(live.pop(number * 13 % LIVE))
    if recording.report.dropped:
        raise RuntimeError(f"{recording.report.dropped} events were lost")


def ours(path: Path) -> bytes:
    with tm.trace.open(path) as trace:
        return page_of(trace)


def as_json(path: Path) -> bytes:
    with tm.trace.open(path) as trace:
        rows = json.dumps([tuple(event) for event in trace.events()])
    script = "window.tensormem = { ready: Promise.resolve(JSON.parse(document.getElementById('data').textContent)) };"
    return f'<!doctype html><script type="text/plain" id="data">{rows}</script><script>{script}</script>'.encode()


@contextmanager
def browser() -> Iterator[Page]:
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        raise RuntimeError("Chromium is not on this machine; it is in scripts/system-packages/test.txt")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--disable-gpu", *sandbox])
        yield running.new_page(viewport={"width": 1440, "height": 1000})
        running.close()


def load(page: Page, html: Path) -> float:
    page.goto("about:blank")
    page.goto(html.as_uri())
    page.evaluate("tensormem.ready.then(() => true)")
    return float(page.evaluate("performance.now()")) / 1000


def figures(peer: str, case: int, page: Page, make: Callable[[Path], bytes], trace: Path) -> Row:
    html = trace.with_suffix(".html")
    start = time.perf_counter()
    html.write_bytes(make(trace))
    values = {"write_s": time.perf_counter() - start, "mb": html.stat().st_size / 1e6}
    values["load_s"] = summarise([load(page, html) for _ in range(ROUNDS)]).median_ns
    if peer == "tensormem":
        values["pan_ms"] = float(page.evaluate(_PAN))
        values["blocks_ms"] = float(page.evaluate(_PAN, "block"))
    return Row(peer, case, values)


def measure(say: Callable[[str], None]) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder, browser() as page:
        for events in EVENTS:
            trace = Path(folder) / f"{events}.tmt"
            say(f"recording {events:,} events")
            record(trace, events)
            for peer, make in (("tensormem", ours), ("the events as JSON, only parsed", as_json)):
                say(f"{events:,} events: {peer}")
                rows.append(figures(peer, events, page, make, trace))
    return rows


QUESTION = Question(
    name="page",
    title="The page of a trace: writing, opening, moving",
    asks="A recording of a pool with 500 live blocks of 24 tags, as one HTML file. Written: from the recording to the "
    "file. Opened: from navigation to the first drawn frame in headless Chromium, from file://. Moved: one frame of "
    "moving a quarter of the chart, stacked by group and block by block. The peer has the same events as JSON and "
    "draws nothing.",
    case_label="events",
    metrics=[
        Metric("load_s", "open (s)"),
        Metric("write_s", "write (s)"),
        Metric("mb", "size (MB)"),
        Metric("pan_ms", "move, per frame (ms)", logarithmic=False),
        Metric("blocks_ms", "move block by block (ms)", logarithmic=False),
    ],
    measure=measure,
    packages=("tensormem", "playwright"),
)
