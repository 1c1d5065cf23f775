"""Takes the pictures of the page that the docs show: `python scripts/screenshots.py`, in the environment of the tests.

Owns: which views are taken. Needs Chromium.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page

import tensormem as tm
from tensormem.reports.page import page_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
FOLDER = ROOT / "docs" / "how-to"
TUTORIALS = ROOT / "docs" / "tutorials"
MOST_BYTES = 200_000


def main() -> int:
    from support.browser import chromium

    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path, html = Path(folder) / "server.tmt", Path(folder) / "server.html"
        # In a folder of that name: the calls in the pictures have no path of this machine.
        program = Path(folder) / "app" / "server.py"
        program.parent.mkdir()
        shutil.copy(ROOT / "scripts" / "screenshot_server.py", program)
        subprocess.run([sys.executable, program, path], check=True)
        with tm.trace.open(path) as trace:
            html.write_bytes(page_of(trace))
        light = browser.open(html.as_uri(), width=1280)
        light.page.locator("#axis [data-value=events]").click()
        light.page.locator("#flame-by [data-value=stack]").click()
        light.ask("select(tensormem.table()[9])")
        shoot(light.page, FOLDER / "look-at-a-trace-light.png", 0, 922)
        shoot(light.page, FOLDER / "look-at-a-trace-blocks.png", 918, 360)
        dark = browser.open(html.as_uri(), scheme="dark", width=1280)
        dark.page.locator("#axis [data-value=events]").click()
        dark.ask("stackBy('block')")
        shoot(dark.page, FOLDER / "look-at-a-trace-dark.png", 0, 520)
        for name in ("training", "pictures"):
            html.write_bytes(recorded_page(ROOT / "examples" / "see" / f"{name}.py", program.parent))
            seen = browser.open(html.as_uri(), width=1280)
            seen.page.locator("#axis [data-value=events]").click()
            shoot(seen.page, TUTORIALS / f"see-my-program-{name}.png", 0, 520)
    return 0


def recorded_page(program: Path, folder: Path) -> bytes:
    """The page of an ordinary program that is recorded from outside."""
    path = folder / "run.tmt"
    copied = shutil.copy(program, folder)
    record = [sys.executable, "-m", "tensormem", "record", "-q", "-f", "--stacks", "-o", str(path), "--"]
    subprocess.run([*record, sys.executable, str(copied)], check=True, cwd=folder)
    with tm.trace.open(path) as trace:
        return page_of(trace)


def shoot(page: Page, output: Path, top: int, height: int) -> None:
    page.set_viewport_size({"width": 1280, "height": 1400})
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.screenshot(path=output, clip={"x": 0, "y": top, "width": 1280, "height": height})
    size = output.stat().st_size
    print(f"{output.relative_to(ROOT)}: {size:,} bytes")
    if size > MOST_BYTES:
        raise SystemExit(f"{output.name} has more than {MOST_BYTES:,} bytes")


if __name__ == "__main__":
    raise SystemExit(main())
