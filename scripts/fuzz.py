"""Runs the coverage-guided fuzzers of the native readers: `fuzz.py SECONDS [RESULTS]`, so many seconds each.

Owns: their build (clang with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer), their corpora in .cache/fuzz,
and one line of results each: name, runs, seconds, "clean" or what was found. Installs what is missing as root, and
says what to install otherwise.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from native import ROOT, build, report_could_not_run, run

READERS = ("dlpack_check", "frame_ring", "offset_allocator", "tensor_message")
OPTIONS = ("-Dpython_module=false", "-Dnative_fuzz=true", "-Doptimization=1")


def links() -> bool:
    """Whether clang is here, and its libFuzzer."""
    if shutil.which("clang++") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.cpp"
        source.write_text('extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n')
        return run("clang++", "-fsanitize=fuzzer,address", source, "-o", Path(folder) / "empty").returncode == 0


def packages() -> list[str]:
    """What Debian calls them. The runtime carries the version of the compiler in its name."""
    known = run("clang++", "-dumpversion").stdout if shutil.which("clang++") else ""
    version = known.split(".")[0] or "14"
    return ["clang", f"libclang-rt-{version.strip()}-dev"]


def install() -> str | None:
    """Makes the fuzzers buildable; why not, if that cannot be done."""
    if links():
        return None
    wanted = " ".join(packages())
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"the fuzzers need clang and its libFuzzer (Debian: {wanted})"
    print(f"installing {wanted}", flush=True)
    run("apt-get", "update", "-qq")
    done = run("apt-get", "install", "-qq", "--yes", "--no-install-recommends", *packages())
    return None if done.returncode == 0 and links() else f"{wanted} cannot be installed: {done.stdout[-300:].strip()}"


def fuzz(reader: str, program: Path, seconds: int) -> tuple[str, bool]:
    """One line of results, and whether nothing was found. An input that breaks something stays beside the corpus."""
    corpus = ROOT / ".cache" / "fuzz" / reader
    corpus.mkdir(parents=True, exist_ok=True)
    limits = (
        f"-max_total_time={seconds}",
        "-max_len=4096",
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
    )
    found = corpus.parent / f"{reader}-found-"
    result = subprocess.run(
        ["nice", program, *limits, f"-artifact_prefix={found}", corpus],
        capture_output=True,
        text=True,
        errors="replace",
    )
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", result.stderr)
    count = f"{int(runs[1]):,}" if runs else "0"
    clean = result.returncode == 0 and runs is not None
    if not clean:
        print(f"--- fuzz_{reader} ended with {result.returncode}\n{result.stderr[-4000:]}", flush=True)
    outcome = "clean" if clean else f"found: {found.relative_to(ROOT)}*"
    return f"fuzz_{reader}\t{count}\t{seconds}\t{outcome}", clean


def main() -> bool:
    """Whether nothing was found."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    reason = install()
    if reason is not None:
        return report_could_not_run([reason])
    os.environ["CXX"], os.environ["CC"] = "clang++", "clang"
    path = build("build-fuzz", *OPTIONS, targets=[f"native/fuzz/fuzz_{reader}" for reader in READERS])
    outcomes = [fuzz(reader, path / "native" / "fuzz" / f"fuzz_{reader}", seconds) for reader in READERS]
    lines = [line for line, _ in outcomes]
    print("\n".join(lines).replace("\t", "  "), flush=True)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text("\n".join(lines) + "\n")
    return all(clean for _, clean in outcomes)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
