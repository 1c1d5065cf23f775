"""`tensormem view`: who is answered, what a browser gets, and how it ends."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

import tensormem as tm
from support.browser import chromium
from tensormem.trace import Trace
from tensormem.web import PageServer


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("view") / "run.tmt"
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    with tm.trace(made, flush_interval=0.001) as recording:
        kept = [pool.allocate("64KiB", tag="weights") for _ in range(8)]
        for _ in range(40):
            for _ in range(100):
                pool.deallocate(pool.allocate(4096, tag="scratch"))
            recording.flush()  # chunks, as a long run has them
    del kept
    return made


@pytest.fixture(scope="module")
def trace(path: Path) -> Iterator[Trace]:
    with tm.trace.open(path) as opened:
        yield opened


def get(server: PageServer, target: str, host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.putrequest("GET", target, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.port}")
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_a_server_that_serves_or_was_closed_is_not_entered_again(trace: Trace) -> None:
    with PageServer(trace) as server:
        with pytest.raises(tm.errors.InvalidArgument, match="serves already"), server:
            pass
        assert get(server, f"/{server.token}/")[0] == 200
    with pytest.raises(tm.errors.InvalidArgument, match="was closed"), server:
        pass


def test_only_who_knows_the_token_and_names_this_host_is_answered(trace: Trace) -> None:
    with PageServer(trace) as server:
        right = f"/{server.token}/"
        assert get(server, right)[0] == 200 and get(server, f"{right}data")[0] == 200
        for target in ("/", "/data", "/x/", f"/{server.token[:-1]}/", f"{right}other", f"{right}../etc/passwd"):
            assert get(server, target)[0] == 404, target
        assert get(server, "http://[/")[0] == 400
        for host in (
            "evil.example",
            f"evil.example:{server.port}",
            f"127.0.0.1.evil.example:{server.port}",
            "127.0.0.1",
        ):
            status, body = get(server, right, host)
            assert status == 403 and b"<html" not in body, host
        assert get(server, right, f"localhost:{server.port}")[0] == 200


@pytest.mark.parametrize("query", ["from=5", "from=a&to=b", "from=9&to=3", "from=-1&to=3", f"from=0&to={2**70}"])
def test_a_window_that_makes_no_sense_is_refused(trace: Trace, query: str) -> None:
    with PageServer(trace) as server:
        status, body = get(server, f"/{server.token}/data?{query}")
        assert status == 400 and b"window" in body
        assert get(server, f"/{server.token}/data")[0] == 200


def test_two_servers_have_two_tokens_and_a_closed_one_is_gone(trace: Trace) -> None:
    with PageServer(trace) as one, PageServer(trace) as two:
        assert one.token != two.token and one.port != two.port
        assert get(two, f"/{one.token}/")[0] == 404
    one.close()
    with pytest.raises(ConnectionError):
        get(one, f"/{one.token}/")


def test_the_browser_asks_for_the_window_that_is_drawn(trace: Trace) -> None:
    with PageServer(trace, most=2000) as server, chromium() as browser:
        shown = browser.open(server.url)
        first = shown.ask("summary()")
        assert first["events"] <= 2000 < trace.event_count and f"of {trace.event_count:,} events" in notice(shown.page)
        times = [event.time_ns for event in trace.events()]
        # Beyond the window that the page begins with: drawing inside that would move it.
        start, end = times[4000] / trace.duration_ns, times[7500] / trace.duration_ns
        assert times[4000] > first["to_ns"]
        draw_over_the_strip(shown.page, start, end)
        shown.page.locator("#notice", has_text="asked for").wait_for()
        second = shown.ask("summary()")
        assert second["from_ns"] != first["from_ns"] and second["events"] <= 2000
        assert second["from_ns"] == pytest.approx(times[4000], abs=trace.duration_ns * 0.003)
        window = trace.window(int(second["from_ns"]), int(second["to_ns"]) + 1)
        assert second["peak_bytes"] == window.peaks("space")[""].nbytes
        assert shown.errors == [] and all(url.startswith(server.url) for url in shown.requests)


def notice(page: Page) -> str:
    return page.locator("#notice").inner_text()


def draw_over_the_strip(page: Page, start: float, end: float) -> None:
    box = page.locator("#overview").bounding_box()
    assert box is not None
    left, width = box["x"] + 68, box["width"] - 78
    page.mouse.move(left + width * start, box["y"] + 15)
    page.mouse.down()
    page.mouse.move(left + width * end, box["y"] + 15, steps=4)
    page.mouse.up()


def test_the_command_prints_its_address_opens_the_browser_and_ends_with_ctrl_c(path: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    environment = {**os.environ, "BROWSER": f"sh -c 'echo %s > {opened}'"}
    with start(path, "--json", env=environment) as process:
        assert process.stdout is not None
        document = json.loads(process.stdout.readline())
        assert document["version"] == 1 and document["url"].startswith("http://127.0.0.1:")
        connection = http.client.HTTPConnection("127.0.0.1", int(document["url"].split(":")[2].split("/")[0]))
        connection.request("GET", "/" + document["url"].split("/", 3)[3])
        assert connection.getresponse().read(15) == b"<!doctype html>"
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert opened.read_text().strip() == document["url"]


def test_the_command_with_no_open_opens_nothing_and_says_what_comes_next(path: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    environment = {**os.environ, "BROWSER": f"sh -c 'echo %s > {opened}'"}
    with start(path, "--no-open", env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0 and "Next: tensormem report" in said and not opened.exists()


def start(path: Path, *options: str, env: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tensormem", "view", str(path), *options]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
