"""The live screen of `tensormem top`, driven key by key without a terminal, and compared with pictures of it.

A picture is the text of a screen in tests/ux/pictures; delete one to have it drawn anew, and look at it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

import tensormem as tm
from support.screens import text_of
from tensormem.errors import CannotWatch
from tensormem.top.rows import Sort
from tensormem.top.screen import TopApp
from tensormem.top.screen.panel import Panel

HERE = Path(__file__).parent
ANSWER = json.loads((HERE / "pictures" / "answer.json").read_text())


class Recorded:
    """A process that always says the same, until it ends."""

    def __init__(self) -> None:
        self.times_asked = 0
        self.ended = False

    def ask(self) -> dict[str, Any]:
        self.times_asked += 1
        if self.ended:
            raise CannotWatch(ANSWER["pid"], "it has ended")
        answer: dict[str, Any] = ANSWER
        return answer


def drive(
    source: Recorded | tm.top.Watch, steps: Callable[[TopApp, Pilot[None]], Awaitable[None]], size: tuple[int, int]
) -> None:
    async def run() -> None:
        app = TopApp(source, interval=3600)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await steps(app, pilot)

    asyncio.run(run())


def resources(app: TopApp) -> Panel:
    return app.query_one("#resources", Panel)


def order(app: TopApp) -> Sort:
    return app.sort


def head(app: TopApp) -> str:
    return str(app.query_one("#head", Static).render())


@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_screen_looks_like_its_picture(size: tuple[int, int]) -> None:
    picture = HERE / "pictures" / f"top-{size[0]}x{size[1]}.txt"

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        drawn = text_of(app)
        if not picture.exists():
            picture.write_text(drawn)
            raise AssertionError(f"{picture.name} was drawn anew: look at it")
        assert drawn == picture.read_text()

    drive(Recorded(), steps, size)


def test_s_goes_through_the_orders_and_back_to_the_tree() -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        tree = [str(key.value) for key in resources(app).rows]
        await pilot.press("s")
        assert order(app) is Sort.USED and "by used" in str(resources(app).border_title)
        by_id = {f"r{each['id']}": each["used_bytes"] for each in ANSWER["resources"]}
        used = [by_id[str(key.value)] for key in resources(app).rows]
        assert used == sorted(used, reverse=True)
        await pilot.press("s", "s", "s", "s")
        assert order(app) is Sort.TREE and [str(key.value) for key in resources(app).rows] == tree

    drive(Recorded(), steps, (80, 24))


def test_enter_folds_what_stands_on_a_resource_and_e_unfolds_everything() -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        before = resources(app).row_count
        await pilot.press("enter")
        folded = resources(app).row_count
        assert folded < before and "…" in text_of(app)
        await pilot.press("e")
        assert resources(app).row_count == before
        await pilot.press("e")
        assert resources(app).row_count < folded

    drive(Recorded(), steps, (80, 24))


def test_the_cursor_stays_on_its_resource_when_the_order_changes() -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down")
        key = resources(app).key_under_cursor()
        await pilot.press("s")
        assert key is not None and resources(app).key_under_cursor() == key

    drive(Recorded(), steps, (160, 48))


def test_p_stops_asking_until_it_is_pressed_again() -> None:
    source = Recorded()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("p")
        asked = source.times_asked
        await app._look_again()
        assert source.times_asked == asked and "paused" in head(app)
        await pilot.press("p")
        await app._look_again()
        assert source.times_asked == asked + 1 and "paused" not in head(app)

    drive(source, steps, (80, 24))


def test_t_changes_between_dark_and_light() -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        dark = app.current_theme.dark
        await pilot.press("t")
        assert app.current_theme.dark is not dark

    drive(Recorded(), steps, (80, 24))


def test_when_the_process_ends_the_last_figures_stay_and_a_line_says_so() -> None:
    source = Recorded()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        source.ended = True
        await app.look()
        assert "it has ended; these are its last figures" in head(app)
        assert resources(app).row_count == len(ANSWER["resources"])
        asked = source.times_asked
        await app._look_again()
        assert source.times_asked == asked
        await pilot.press("q")

    drive(source, steps, (80, 24))
    assert source.ended


def test_a_wider_screen_has_more_columns() -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        narrow = len(resources(app).columns)
        await pilot.resize_terminal(160, 48)
        await pilot.pause()
        assert len(resources(app).columns) > narrow

    drive(Recorded(), steps, (80, 24))


def test_tenants_of_a_budget_that_processes_share_are_shown_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        names = [str(app.query_one("#tenants", Panel).get_row_at(place)[0]) for place in range(4)]
        assert names[0].startswith("TenantPool") and names[1:3] == ["└ " + "a" * 80] * 2
        assert names[3].startswith("SharedBudget")

    with tm.SharedBudget.create("64MiB") as budget, tm.TenantPool(budget=budget) as models:
        for last in "bc":  # names that are the same as far as they are shown
            models.register("a" * 80 + last, "1GiB")
        with tm.top.serve() as service, tm.top.Watch(service.pid) as watch:
            drive(watch, steps, (160, 48))


def test_the_screen_shows_a_real_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    block = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource()).allocate("3MiB")

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        assert "Pool #" in text_of(app) and "3 MiB" in text_of(app)

    with tm.top.serve() as service, tm.top.Watch(service.pid) as watch:
        drive(watch, steps, (80, 24))
    assert block.nbytes == 3 * 2**20
