"""Runs all native tests under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer.

Owns: the sanitizers' settings, and the proof that each one bites: it must report every planted mistake of
sanitizer_canary.cpp before its silence about our tests means anything.
"""

import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from native import ROOT, TESTS, build, report_could_not_run, run, run_or_exit, run_tests, summarise

OPTIONS = {
    "ASAN_OPTIONS": "abort_on_error=0:exitcode=66:detect_leaks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "halt_on_error=1:exitcode=66:print_stacktrace=1",
    # A child of a process with threads may have threads of its own: tests of what a fork survives do just that.
    "TSAN_OPTIONS": "exitcode=66:second_deadlock_stack=1:die_after_fork=0",
}
# How long eight threads churn under ThreadSanitizer, where races that need luck show.
SOAK_SECONDS = "60"
# With more random bits than this, ThreadSanitizer may find its own address ranges taken.
TSAN_MMAP_RND_BITS = 28


@dataclass(frozen=True)
class Sanitizer:
    name: str
    flags: str
    mistakes: tuple[str, ...]
    optimization: int
    wrapper: tuple[str, ...] = ()
    soak_seconds: str = "1"

    def bites(self, directory: Path) -> bool:
        canary = directory / "sanitizer_canary"
        flags = ("-g", f"-fsanitize={self.flags}", "-pthread")
        run_or_exit("g++", *flags, ROOT / "scripts" / "sanitizer_canary.cpp", "-o", canary)
        for mistake in ("none", *self.mistakes):
            result = run(*self.wrapper, canary, mistake, env=OPTIONS)
            if (result.returncode == 0) != (mistake == "none"):
                print(f"sanitizer {self.flags} does not work here; planted mistake: {mistake}\n{result.stdout}")
                return False
        return True

    def accepts_our_tests(self) -> bool:
        start = time.monotonic()
        options = (f"-Db_sanitize={self.flags}", "-Db_lundef=false", f"-Doptimization={self.optimization}")
        path = build(f"build-{self.name}", *TESTS, *options)
        if not self.bites(path):
            return False
        wrapper = [f"--wrapper={' '.join(self.wrapper)}"] if self.wrapper else []
        title = f"sanitizer {self.flags} ({len(self.mistakes)} planted mistakes found)"
        environment = {**OPTIONS, "TENSORMEM_SOAK_SECONDS": self.soak_seconds}
        outcome = run_tests(path, "--timeout-multiplier=4", *wrapper, env=environment)
        return summarise(title, outcome, time.monotonic() - start)


def randomisation_is_too_wide() -> bool:
    bits = Path("/proc/sys/vm/mmap_rnd_bits")
    return bits.is_file() and int(bits.read_text()) > TSAN_MMAP_RND_BITS


def main() -> bool:
    # Unoptimised, this pair compiles three times faster, and the optimiser cannot remove what it should report.
    address = Sanitizer("address", "address,undefined", ("use-after-free", "leak", "signed-overflow"), optimization=0)
    ok = address.accepts_our_tests()
    wrapper = ("setarch", "-R") if randomisation_is_too_wide() else ()
    if wrapper and (shutil.which("setarch") is None or run(*wrapper, "true").returncode != 0):
        reason = f"ThreadSanitizer: vm.mmap_rnd_bits is above {TSAN_MMAP_RND_BITS} and setarch -R is refused"
        return report_could_not_run([reason]) and ok
    thread = Sanitizer("thread", "thread", ("data-race",), 1, wrapper, SOAK_SECONDS)
    return thread.accepts_our_tests() and ok


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
