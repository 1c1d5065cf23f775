"""Makes wheels that run on any Linux of the last years: `wheels.py`, or `wheels.py 3.12 3.14t` for some of them.

Owns: `dist/`, and `.cache/wheels` with what is on its way there. No container is needed: zig's C++
compiler, a package of pip's index, brings the headers and stubs of old C libraries along, and its C++ library is linked
into ours. A wheel is moved to `dist/` only after auditwheel, twine and check-wheel-contents passed it, and after it was
installed into an empty environment with no compiler in sight, where the examples of the README ran.
Must not know: where interpreters come from.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import interpreters
import progress
import toolchain

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "wheels"
DIST = ROOT / "dist"
# The C library of Debian 10 and RHEL 8: memfd_create is in it, and not in older ones.
GLIBC = "2.28"
PLATFORM = f"manylinux_{GLIBC.replace('.', '_')}_x86_64"
# Runs one example of the README; the first shows other libraries, the second needs nothing but tensormem.
EXAMPLE = (
    "import sys; sys.path.append(sys.argv[1]); from docs_blocks import blocks; from pathlib import Path; "
    "exec(blocks(Path(sys.argv[2]))[int(sys.argv[3])].code, {})"
)


def step(text: str, *command: str | Path, env: Mapping[str, str] | None = None) -> str:
    code, said = progress.run(text, *command, env=env)
    if code != 0:
        print(toolchain.why_it_failed(said) or f"\n$ {' '.join(map(str, command))}\n{said}", file=sys.stderr)
        sys.exit(1)
    return said


def environment(name: str, interpreter: Path, group: str) -> Path:
    """The python of an environment that has this group of tools."""
    command = (interpreter, ROOT / "scripts" / "environment.py", "--environment", name, "--no-project", group)
    if subprocess.run(command).returncode != 0:
        sys.exit(1)
    return ROOT / name / "bin" / "python"


def compilers(tools: Path) -> dict[str, str]:
    """Variables of a build for the old C library."""
    folder = CACHE / "compilers"
    folder.mkdir(parents=True, exist_ok=True)
    found = subprocess.run([tools, "-c", "import ziglang; print(ziglang.__file__)"], capture_output=True, text=True)
    zig = Path(found.stdout.strip()).parent / "zig"
    for name, words in {
        "zig-cc": f"cc -target x86_64-linux-gnu.{GLIBC}",
        "zig-c++": f"c++ -target x86_64-linux-gnu.{GLIBC}",
        "zig-ar": "ar",
    }.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{zig}" {words} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    cache = toolchain.compiler_cache()
    first = "ccache " if cache else ""
    return {
        **cache,
        "CCACHE_COMPILERTYPE": "clang",
        "CCACHE_COMPILERCHECK": "content",
        "CC": f"{first}{folder / 'zig-cc'}",
        "CXX": f"{first}{folder / 'zig-c++'}",
        "AR": f"{folder / 'zig-ar'}",
        # Each module has its own copy of what it needs of the C++ library, and must not take another's.
        "LDFLAGS": "-Wl,-Bsymbolic -Wl,-s",
    }


def unpacked_source(tools: Path) -> Path:
    """The source distribution of what is committed, in `dist/` and unpacked: wheels are built from nothing else."""
    program = f"import mesonpy; print(mesonpy.build_sdist({str(DIST)!r}))"
    file = DIST / step("making the source distribution", tools, "-c", program).split()[-1]
    step("twine", tools, "-m", "twine", "check", "--strict", file)
    folder = CACHE / "source"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.unpack_archive(file, folder, filter="data")
    return next(folder.iterdir())


def build(name: str, interpreter: Path, source: Path, variables: Mapping[str, str]) -> Path:
    """A wheel as the build makes it, without an index to fetch anything from."""
    python = environment(f".venv-wheel-{name}", interpreter, "build")
    raw = CACHE / name / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    packages = interpreter.resolve().parent.parent / "lib" / "pkgconfig"
    command = (python, "-m", "pip", "wheel", "--verbose", "--no-index", "--no-deps", "--no-build-isolation")
    options = ("--wheel-dir", raw, f"-Cbuild-dir={ROOT / f'build-wheel-{name}'}")
    step(f"{name}: building", *command, *options, source, env={**variables, "PKG_CONFIG_LIBDIR": str(packages)})
    return next(raw.glob("*.whl"))


def repair(name: str, wheel: Path, tools: Path) -> Path:
    """The same wheel with the name of the C library it needs, checked by everybody who checks wheels."""
    folder = CACHE / name / "repaired"
    shutil.rmtree(folder, ignore_errors=True)
    auditwheel = (tools, "-m", "auditwheel", "repair", "--only-plat", "--plat", PLATFORM, "--wheel-dir", folder)
    step(f"{name}: auditwheel", *auditwheel, wheel)
    repaired = next(folder.glob("*.whl"))
    step(f"{name}: twine", tools, "-m", "twine", "check", "--strict", repaired)
    step(f"{name}: check-wheel-contents", tools, "-m", "check_wheel_contents", repaired)
    return repaired


def try_out(name: str, interpreter: Path, wheel: Path) -> None:
    """Installs the wheel where there is nothing else, and runs the README."""
    folder = CACHE / name / "empty"
    python = folder / "bin" / "python"
    step(f"{name}: making an empty environment", interpreter, "-m", "venv", "--clear", folder)
    pip = (python, "-m", "pip", "install", "--quiet")
    step(f"{name}: installing the wheel", *pip, "--no-index", wheel)
    _run_example(name, python, 1)
    if _pytorch_is_at_hand(python):
        step(f"{name}: installing NumPy and PyTorch", *pip, "numpy", "torch==2.13.0")
        _run_example(name, python, 0)


def _run_example(name: str, python: Path, number: int) -> None:
    words = (ROOT / "tests" / "promises", ROOT / "README.md", str(number))
    # No path to a compiler, and none of the variables that lead to this checkout.
    command = ("/usr/bin/env", "-i", f"PATH={python.parent}", python, "-I", "-W", "error", "-c", EXAMPLE)
    step(f"{name}: example {number + 1} of the README", *command, *words)


def _pytorch_is_at_hand(python: Path) -> bool:
    """Whether a wheel of PyTorch for this Python is on this machine: the index has only those of several gigabytes."""
    command = (python, "-m", "pip", "install", "--quiet", "--dry-run", "--no-index", "--no-deps", "torch==2.13.0")
    return subprocess.run(command, capture_output=True).returncode == 0


def main() -> None:
    names = sys.argv[1:] or interpreters.VERSIONS
    try:
        found = {name: interpreters.find(name) for name in names}
    except interpreters.NoInterpreterError as missing:
        sys.exit(str(missing))
    tools = environment(".venv-wheels", Path(sys.executable), "wheels")
    variables = compilers(tools)
    DIST.mkdir(exist_ok=True)
    source = unpacked_source(tools)
    for name, interpreter in found.items():
        wheel = repair(name, build(name, interpreter, source, variables), tools)
        try_out(name, interpreter, wheel)
        shutil.copy(wheel, DIST)
        print(f"dist/{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
