"""Finds an interpreter of each Python that tensormem runs on, or builds it: `interpreters.py 3.12 3.14t` prints paths.

Owns: `.cache/pythons` (or the folder named by PYTHONS), with one interpreter in a folder of its name, such as `3.14t`.
An interpreter of this machine is taken first: `python3.14t` on the path, then those of pyenv. Otherwise one is built
from the source package of Debian, read from the archive of this machine's own apt configuration and held to its digest.
Must not know: what the interpreters are used for.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import progress
from project_lock import project_lock

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("PYTHONS") or ROOT / ".cache" / "pythons")
VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
# What can be built: the release, and the digest that the signed description of its source package gives.
SOURCES = {
    "3.13": ("3.13.5", "93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640"),
    "3.14": ("3.14.7", "3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81"),
}
ASK = """
import json, os, sys, sysconfig
print(json.dumps({
    "name": "%d.%d" % sys.version_info[:2] + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""),
    "headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
}))
"""


class NoInterpreterError(Exception):
    """This Python is not on the machine and cannot be built here; the text says why, and what would help."""


def find(name: str) -> Path:
    """The path of an interpreter called `name`, such as "3.12" or "3.14t"; builds it where it can."""
    if name not in VERSIONS:
        raise NoInterpreterError(f"{name} is not a Python that tensormem runs on: {', '.join(VERSIONS)}")
    found = next((path for path in _candidates(name) if _is(path, name)), None)
    return found or _build(name)


def _candidates(name: str) -> Iterator[Path]:
    yield FOLDER / name / "bin" / f"python{name}"
    on_path = shutil.which(f"python{name}")
    if on_path is not None:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    number = name.removesuffix("t")
    yield from sorted(pyenv.glob(f"versions/{number}.*/bin/python{name}"), reverse=True)


def _is(path: Path, name: str) -> bool:
    """Whether this is that Python, and one that modules can be compiled for. Shims of pyenv exist and do not run."""
    try:
        said = subprocess.run([path, "-c", ASK], capture_output=True, text=True, timeout=60)
    except OSError:
        return False
    return said.returncode == 0 and bool(json.loads(said.stdout) == {"name": name, "headers": True})


def _build(name: str) -> Path:
    number = name.removesuffix("t")
    if number not in SOURCES:
        raise NoInterpreterError(
            f"Python {name} was not found on the path or under pyenv, and Debian has no source package of it to build. "
            f"Install one, with its headers, so that python{name} is on the path."
        )
    release, digest = SOURCES[number]
    FOLDER.mkdir(parents=True, exist_ok=True)
    with project_lock(), TemporaryDirectory(dir=FOLDER) as scratch:
        sources = _unpack(f"python{number}", release, digest, Path(scratch))
        options = ["--quiet", "--disable-test-modules", *(["--disable-gil"] if name.endswith("t") else [])]
        made = Path(scratch) / "made"
        program = (
            f'cd "{sources}" && ./configure --prefix="{FOLDER / name}" {" ".join(options)} && '
            f'make -s -j{os.cpu_count()} && make -s install DESTDIR="{made}"'
        )
        code, said = progress.run(
            f"building Python {release}{'t' if name.endswith('t') else ''}", "/bin/sh", "-c", program
        )
        if code != 0:
            raise NoInterpreterError(f"Python {name} did not build:\n{said[-2000:]}")
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        Path(f"{made}{FOLDER / name}").rename(FOLDER / name)  # whole or not at all
    return FOLDER / name / "bin" / f"python{name}"


def _unpack(package: str, release: str, digest: str, scratch: Path) -> Path:
    sys.path.append(str(ROOT / "tests"))
    from vm.machine.archive import own_source
    from vm.machine.archive import release as distribution
    from vm.machine.means import MissingMeans

    try:
        address, _ = own_source(*distribution())
        with urllib.request.urlopen(
            f"{address.rstrip('/')}/pool/main/p/{package}/{package}_{release}.orig.tar.xz", timeout=120
        ) as answer:
            data: bytes = answer.read()
    except (MissingMeans, OSError) as error:
        raise NoInterpreterError(f"the sources of {package} {release} cannot be fetched: {error}") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise NoInterpreterError(f"the sources of {package} {release} are not the ones that were signed")
    file = scratch / "sources.tar.xz"
    file.write_bytes(data)
    with tarfile.open(file) as archive:
        archive.extractall(scratch, filter="data")
    return next(path.parent for path in sorted(scratch.glob("*/configure")))


def main() -> None:
    for name in sys.argv[1:] or VERSIONS:
        try:
            print(f"{name}\t{find(name)}", flush=True)
        except NoInterpreterError as missing:
            sys.exit(str(missing))


if __name__ == "__main__":
    main()
