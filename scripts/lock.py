"""Writes down which packages the tests passed with: `lock.py` renews `locks/`, one file for each group of tools.

Owns: the lock files: name, version and digests of everything that a group installs, and no address. They hold for one
Python on one kind of machine, which their first line names; `scripts/environment.py` uses them there, and nowhere else.
Must not know: what the packages are for.
"""

import hashlib
import json
import platform
import re
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


def heading(group: str) -> str:
    """What the lock of this group begins with, on this Python and machine."""
    return f"# {group}, {holds_for()}. Renew it with: make lock\n"


def lock_of(group: str) -> Path | None:
    """The lock of a group, if it is for this Python and machine and has what is asked for now."""
    path = FOLDER / f"{group}.txt"
    if not path.is_file() or not path.read_text(encoding="utf-8").startswith(heading(group)):
        return None
    return None if lacks(group) else path


def lacks(group: str) -> list[str]:
    """Requirements of the group that its lock does not meet."""
    lines = (FOLDER / f"{group}.txt").read_text(encoding="utf-8").splitlines()[1:]
    locked = dict(line.split(" ")[0].split("==") for line in lines)
    names = {_plain(name): version for name, version in locked.items()}
    return [text for text in requirements(group) if not _is_met(text, names)]


def what_is_stale(group: str) -> str | None:
    """What to say where a lock is for this Python and machine, but does not have what is asked for."""
    path = FOLDER / f"{group}.txt"
    if not path.is_file() or not path.read_text(encoding="utf-8").startswith(heading(group)) or not lacks(group):
        return None
    return f"locks/{group}.txt does not have {', '.join(lacks(group))}; renew it with: make lock"


def requirements(group: str) -> list[str]:
    """What a group asks for, with the groups that it includes."""
    found: list[str] = []
    for item in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"][group]:
        found += [item] if isinstance(item, str) else requirements(item["include-group"])
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_met(requirement: str, locked: dict[str, str]) -> bool:
    """Whether the locked version is in the bounds. Standard library only: it runs before anything is installed."""
    parts = re.match(r"[\w.-]+(?=\[|[<>=~!]|$)", requirement)
    name = parts[0] if parts else requirement
    if _plain(name) not in locked:
        return False
    have = _numbers(locked[_plain(name)])
    return all(_in_bound(have, sign, bound) for sign, bound in re.findall(r"(>=|==|~=|<)([\d.]+)", requirement))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0]))


def _in_bound(have: tuple[int, ...], sign: str, text: str) -> bool:
    bound = _numbers(text)
    if sign == "==":
        return have[: len(bound)] == bound
    if sign == "~=":
        return have >= bound and have[: len(bound) - 1] == bound[:-1]
    return have >= bound if sign == ">=" else have < bound


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


def main() -> None:
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
