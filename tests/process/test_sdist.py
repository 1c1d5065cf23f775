"""The source distribution has every file of the project, and is configured without a network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent


def run(*command: str | Path, cwd: Path) -> str:
    path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=cwd, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    program = f"import mesonpy; mesonpy.build_sdist({str(folder)!r})"
    run(sys.executable, "-c", program, cwd=ROOT)
    shutil.unpack_archive(next(folder.glob("*.tar.gz")), folder / "unpacked")
    return next((folder / "unpacked").iterdir())


def test_every_committed_file_is_in_it(unpacked: Path) -> None:
    committed = set(run("git", "ls-tree", "-r", "--name-only", "HEAD", cwd=ROOT).split("\n")) - {""}
    missing = sorted(name for name in committed if not (unpacked / name).exists())
    assert missing == []
    metadata = (unpacked / "PKG-INFO").read_text()
    assert "Name: tensormem\n" in metadata and "Requires-Dist: numpy" in metadata


def test_it_is_configured_with_nothing_fetched(unpacked: Path, tmp_path: Path) -> None:
    said = run("meson", "setup", tmp_path / "build", "--wrap-mode=nodownload", cwd=unpacked)
    assert "Found ninja" in said
