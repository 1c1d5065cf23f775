"""Owns: what Python in the virtual machine needs of the host: an installed tensormem, and the folders to share.

Must not know: which tests run there.
"""

import compileall
import os
import shlex
import sys
from pathlib import Path

from vm.machine.means import MissingMeans, run
from vm.machine.ramdisk import Share

ROOT = Path(__file__).resolve().parents[3]
_LOADER = Path("/lib64/ld-linux-x86-64.so.2")


def install(folder: Path) -> Path:
    """Install the editable build below `folder`; gives the place for PYTHONPATH. The guest cannot rebuild anything."""
    tools = str(Path(sys.executable).parent)
    run(
        sys.executable,
        *("-m", "mesonbuild.mesonmain", "install", "-C", "build", "--quiet", "--destdir", folder),
        cwd=ROOT,
        path=tools,
        time_limit=1200,
    )
    for found in folder.rglob("tensormem/__init__.py"):
        compileall.compile_dir(found.parent, quiet=2)
        return found.parent.parent
    raise MissingMeans("the build of the project installs no Python package; has `make test` made it?")


def shares() -> list[Share]:
    """The project, its environment wherever that is, the interpreter's prefix, and the C library."""
    library = _LOADER.resolve().parent
    folders = {ROOT, Path(sys.base_prefix).resolve(), library, *map(Path, _packages())}
    apart = [one for one in folders if not any(one != other and one.is_relative_to(other) for other in folders)]
    return [Share(folder, folder) for folder in sorted(apart)]


def _packages() -> list[str]:
    return [path for path in sys.path if path.endswith("site-packages")]


def links() -> dict[str, str]:
    """Where the loader of programs is looked for, whatever folder it is really in."""
    found = {str(_LOADER).lstrip("/"): str(_LOADER.resolve())}
    if os.path.islink("/lib"):
        found["lib"] = os.readlink("/lib")
    return found


def python_command(site: Path, variables: dict[str, str]) -> str:
    """A line of shell that starts the interpreter with the environment's packages, and without its start-up hooks."""
    executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    wanted = {
        "HOME": "/tmp",
        "PATH": "/bin",
        "PYTHONPATH": os.pathsep.join([str(site), *_packages(), str(ROOT / "tests"), str(ROOT / "examples")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "INSIDE_THE_MACHINE": "1",
        **variables,
    }
    assignments = [shlex.quote(f"{name}={value}") for name, value in wanted.items()]
    return f"env -i {' '.join(assignments)} {shlex.quote(str(executable))} -S"
