"""Makes a virtual environment of the project and keeps it true.

Owns: `.venv`, to work on tensormem (an editable installation that rebuilds itself on import), `.venv-bench`, to measure
it (a real installation beside its peers), and `.venv-3.12` and so on, to test it on other Pythons (editable, and not
optimised: that is about what happens, not how fast). Each finished step leaves a stamp inside the environment, with a
digest of everything it depended on; a step runs only when its stamp does not match. An environment without our stamps
was made by somebody else and is made again.
Must not know: what the environments are used for. Standard library only, because it runs before anything is installed.
"""

import argparse
import hashlib
import json
import shutil
import sys
import tomllib
from pathlib import Path

import lock
import progress
import toolchain
from project_lock import project_lock

ROOT = Path(__file__).resolve().parent.parent
EDITABLE = ".venv"
SOURCES = ("src", "native", "simgpu", "meson.build", "meson.options", "README.md", "LICENSE")


def digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def digest_of_sources() -> str:
    found = [file for name in SOURCES for file in sorted([ROOT / name, *(ROOT / name).rglob("*")])]
    files = [file for file in found if file.is_file() and file.suffix != ".pyc"]
    return digest(*(f"{file}:{hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files))


def run_step(text: str, *command: str | Path) -> None:
    """Says what is being done on one line, and how far it is; shows the output only when it fails."""
    code, said = progress.run(text, *command, env={"PIP_DISABLE_PIP_VERSION_CHECK": "1", **toolchain.compiler_cache()})
    if code != 0:
        why = toolchain.why_it_failed(said)
        print(f"\n$ {' '.join(map(str, command))}\n{said}" if why is None else why, file=sys.stderr)
        sys.exit(1)


class Environment:
    def __init__(self, name: str) -> None:
        self.path = ROOT / name
        self.python = self.path / "bin" / "python"
        self.other_python = name.startswith(".venv-3.")
        self.editable = name == EDITABLE or self.other_python
        self.build_directory = {EDITABLE: "build", ".venv-bench": "build-wheel"}.get(name, f"build{self.path.name[5:]}")
        self.project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def is_stamped(self, step: str, key: str) -> bool:
        stamp = self.path / "stamps" / step
        return stamp.is_file() and stamp.read_text() == key

    def stamp(self, step: str, key: str) -> None:
        (self.path / "stamps").mkdir(exist_ok=True)
        (self.path / "stamps" / step).write_text(key)

    def create(self) -> None:
        # The path counts: neither an environment nor a build directory survives being copied elsewhere.
        key = digest(self.path, sys.version, sys.base_prefix)
        if self.is_stamped("created", key) and self.python.exists():
            return
        verb = "making again" if self.path.exists() else "making"
        shutil.rmtree(ROOT / self.build_directory, ignore_errors=True)
        text = f"{verb} {self.path.name} with Python {sys.version.split()[0]}"
        run_step(text, sys.executable, "-m", "venv", "--clear", self.path)
        run_step("installing pip", self.python, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1")
        self.stamp("created", key)

    def install_groups(self, groups: list[str]) -> None:
        locks = [path.read_text(encoding="utf-8") for path in sorted(lock.FOLDER.glob("*.txt"))]
        key = digest(json.dumps(self.project["dependency-groups"], sort_keys=True), *locks)
        stale = [group for group in groups if not self.is_stamped(f"group-{group}", key)]
        if not stale:
            return
        for group in stale:
            if not self._install_tested(group):
                run_step(f"installing tools: {group}", self.python, "-m", "pip", "install", "--quiet", "--group", group)
            self.stamp(f"group-{group}", key)

    def _install_tested(self, group: str) -> bool:
        """Installs the locked versions, if they are for this Python and machine and can be had."""
        pinned = lock.lock_of(group)
        if pinned is None:
            if stale := lock.what_is_stale(group):
                print(stale, flush=True)
            return False
        options = ("--no-deps", "--require-hashes", "-r", pinned)
        command = (self.python, "-m", "pip", "install", "--quiet", *options)
        code, said = progress.run(f"installing tested tools: {group}", *command)
        if code != 0:
            why = said.strip().splitlines()[-1:] or ["pip said nothing"]
            print(f"locks/{group}.txt does not fit what pip finds here ({why[0]}); taking what pyproject.toml allows.")
        return code == 0

    def install_project(self) -> None:
        facts = [json.dumps(self.project[table], sort_keys=True) for table in ("build-system", "project")]
        key = digest(*facts, "editable" if self.editable else digest_of_sources())
        if self.is_stamped("project", key):
            return
        missing = toolchain.what_is_missing()
        if missing is not None:
            sys.exit(missing)
        self.drop_half_configured()
        how = ["--editable", ".[cli]"] if self.editable else ["--force-reinstall", "--no-deps", "."]
        build = ["--no-build-isolation", f"-Cbuild-dir={self.build_directory}"]
        if self.other_python:
            build += ["-Csetup-args=-Doptimization=0", "-Csetup-args=-Dbuildtype=plain"]
        # Not quiet: what ninja says is how far it is.
        run_step("building tensormem", self.python, "-m", "pip", "install", "--verbose", *build, *how)
        self.stamp("project", key)

    def drop_half_configured(self) -> None:
        # What was interrupted while it compiled goes on; what was interrupted while it was configured cannot.
        build = ROOT / self.build_directory
        if build.exists() and not (build / "build.ninja").is_file():
            shutil.rmtree(build)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a virtual environment of the project and keep it true.")
    parser.add_argument("--environment", default=EDITABLE, metavar="NAME")
    parser.add_argument("--no-project", action="store_true", help="the tools only, without tensormem")
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    arguments = parser.parse_args()
    environment = Environment(arguments.environment)
    with project_lock():
        environment.create()
        environment.install_groups(arguments.groups)
        if not arguments.no_project:
            environment.install_project()


if __name__ == "__main__":
    main()
