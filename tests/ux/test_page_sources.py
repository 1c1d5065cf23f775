"""Pages of traces of every kind: of other tools, empty ones, cut off ones, and those that mean harm."""

import threading
from pathlib import Path

import pytest

import tensormem as tm
from support.browser import OpenedPage
from support.pages import VIEWS, Show, out_at, text_trace
from support.workloads import cases

HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>"


@pytest.mark.parametrize("workload", cases("torch/*.pickle"), indirect=True)
def test_a_pytorch_snapshot_is_shown(show: Show, workload: Path) -> None:
    page = show(workload)
    with tm.trace.open(workload) as trace:
        assert page.ask("summary()")["peak_bytes"] == trace.peaks("space")[""].nbytes
        middle = trace.duration_ns // 2
        assert page.ask("usage('space', tensormem.eventAt(argument))", middle) == out_at(trace, middle, "space")
    assert page.ask("map()")["holes"] > 0 and page.errors == []
    assert all(len(page.colors(view)) > 2 for view in VIEWS)


@pytest.mark.parametrize("workload", cases("torch/*inference.csv"), indirect=True)
def test_lifetimes_without_addresses_are_shown(show: Show, workload: Path) -> None:
    page = show(workload)
    with tm.trace.open(workload) as trace:
        assert page.ask("summary()")["peak_bytes"] == tm.trace.peak_load(trace.lifetimes())
    assert "no addresses" in page.page.locator("#state").inner_text()
    assert page.errors == [] and all(len(page.colors(view)) > 2 for view in VIEWS)


def test_an_empty_trace_says_so(show: Show, tmp_path: Path) -> None:
    page = show(text_trace(tmp_path / "empty.csv"))
    assert "empty" in page.page.locator("#notice").inner_text()
    for key in ("ArrowRight", "p", "s", "+", "4", "t", "Escape"):
        page.page.keyboard.press(key)
    page.settle()
    assert page.ask("summary()")["events"] == 0 and page.errors == []


def test_a_trace_of_one_block_and_of_one_event_is_shown(show: Show, tmp_path: Path) -> None:
    page = show(text_trace(tmp_path / "one.csv", "a,0,4,16"))
    assert page.ask("usage('tag', 0)") == {"a": 16} and page.errors == []
    with tm.trace(tmp_path / "counter.tmt"):
        pass
    page = show(tmp_path / "counter.tmt")
    assert page.ask("summary()")["peak_bytes"] == 0 and page.errors == []


def test_names_are_text_and_never_html(show: Show, tmp_path: Path) -> None:
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


def test_numbers_past_all_bounds_neither_hang_nor_break_the_page(show: Show, tmp_path: Path) -> None:
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


def test_events_of_several_threads_are_put_in_order(show: Show, tmp_path: Path) -> None:
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


def test_a_recording_that_was_cut_off_says_so(show: Show, server_trace: Path, tmp_path: Path) -> None:
    data = server_trace.read_bytes()
    (tmp_path / "cut.tmt").write_bytes(data[: len(data) * 9 // 10])
    page = show(tmp_path / "cut.tmt")
    assert "cut off" in page.page.locator("#notice").inner_text() and page.errors == []
