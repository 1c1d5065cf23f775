"""Writes down which packages the tests passed with: `lock.py` renews `locks/`, one file for each group of tools.

Owns: the lock files: name, version and digests of everything that a group installs, and no address. They hold for one
Python on one kind of machine, which their first line names; `scripts/environment.py` uses them there, and nowhere else.
Must not know: what the packages are for.
"""

import hashlib
import json
import platform
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "locks"
GROUPS = ("build", "test", "lint", "docs")


def holds_for() -> str:
    """The Python and the kind of machine that a lock is for."""
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.system()} {platform.machine()}"


def digest_of_what_is_asked() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [project["dependency-groups"][name] for name in GROUPS], project["project"]["optional-dependencies"]["cli"]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def heading(group: str) -> str:
    """What the lock of this group begins with, on this Python and machine and for what is asked for now."""
    return f"# {group}, {holds_for()}; for {digest_of_what_is_asked()}. Renew it with: make lock\n"


def lock_of(group: str) -> Path | None:
    """The lock of a group, if there is one for this Python, this machine and the tools asked for now."""
    path = FOLDER / f"{group}.txt"
    if not path.is_file() or not path.read_text(encoding="utf-8").startswith(heading(group)):
        return None
    return path


def resolve(groups: tuple[str, ...], constraint: Path | None) -> list[dict[str, object]]:
    """What pip would install for these groups into an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--report", str(report), *(word for group in groups for word in ("--group", group))]
        command += ["--constraint", str(constraint)] if constraint is not None else []
        # The command line tool is installed with the project.
        command += tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["cli"]
        subprocess.run(command, cwd=ROOT, check=True)
        found: list[dict[str, object]] = json.loads(report.read_text(encoding="utf-8"))["install"]
    return found


def line_of(item: dict[str, object]) -> str:
    metadata, download = item["metadata"], item["download_info"]
    assert isinstance(metadata, dict) and isinstance(download, dict)
    digest = download["archive_info"].get("hashes", {}).get("sha256") or _digest_of(download["url"])
    return f"{metadata['name'].lower()}=={metadata['version']} --hash=sha256:{digest}"


def _digest_of(address: str) -> str:
    """Of a file on this machine, for which pip gives none."""
    return hashlib.sha256(Path(unquote(urlsplit(address).path)).read_bytes()).hexdigest()


def check() -> None:
    """Ends with a sentence where the locks are for other tools than are asked for now."""
    stale = [group for group in GROUPS if digest_of_what_is_asked() not in (FOLDER / f"{group}.txt").read_text()]
    if stale:
        sys.exit(f"The tools in pyproject.toml are not those of locks/{', '.join(stale)}. Renew them with: make lock")


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        return check()
    FOLDER.mkdir(exist_ok=True)
    everything = resolve(GROUPS, None)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as versions:
        versions.writelines(f"{line_of(item).split(' ')[0]}\n" for item in everything)
        versions.flush()
        for group in GROUPS:
            lines = sorted(line_of(item) for item in resolve((group,), Path(versions.name)))
            (FOLDER / f"{group}.txt").write_text(heading(group) + "\n".join(lines) + "\n", encoding="utf-8")
            print(f"locks/{group}.txt: {len(lines)} packages", flush=True)


if __name__ == "__main__":
    main()
