"""What installers and package pages are told: one version, extras that exist, classifiers that are true."""

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import tensormem

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_stands_in_one_place() -> None:
    printed = subprocess.run(
        [sys.executable, ROOT / "scripts" / "version.py"], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == tensormem.__version__ == importlib.metadata.version("tensormem")
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT


def test_all_is_every_extra_that_a_user_may_want() -> None:
    extras = PROJECT["optional-dependencies"]
    named = extras["all"][0].partition("[")[2].rstrip("]").split(",")
    assert set(named) == extras.keys() - {"all", "selftest"}
    assert set(extras["selftest"]) <= set(extras["cli"])


def test_import_needs_nothing_but_the_standard_library() -> None:
    assert PROJECT["dependencies"] == []


def test_people_find_the_files_they_look_for() -> None:
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert (ROOT / name).stat().st_size > 500, name
    assert (ROOT / "CITATION.cff").is_file() and list((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
