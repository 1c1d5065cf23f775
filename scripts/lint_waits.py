"""Compares every place of the sources that can block with a list that says why it may.

A caller of the library waits through native/base/wait.hpp and nowhere else: so whatever can block is either beneath
it, or a thread of ours, or bounded, or a program of its own. Who adds one says which, or the guard fails.
`tensormem.testing.waits` lists the calls that get there.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PYTHON = re.compile(
    r"threading\.(Event|Condition|Semaphore|BoundedSemaphore|Barrier)$|^(Simple|Lifo|Priority)?Queue$|^time\.sleep$"
    r"|^select\.(poll|select|epoll)$|_thread\.join$|^thread\.join$|\.result$|^subprocess\.\w+$|\.communicate$"
    r"|\.acquire$|flock$|SETLKW$|urlopen$|asyncio\.run$"
)
NATIVE = re.compile(
    r"std::condition_variable \w|sleep_for|sleep_until|\bnanosleep\(|::p?poll\(|SYS_futex|sem_\w*wait|SETLKW|::flock\("
    r"|join_thread\(|(->|\.)join\(\)|(->|\.)wait\((lock|seen)|\.wait_for\(lock|std::(latch|barrier|counting_semaphore)"
)

BENEATH = "beneath the one wait"
OURS = "a thread of ours, which no caller waits in"
JOIN = "ends a thread of ours, which was told to stop and answers at once"
PROGRAM = "a program of its own: it owns its main thread, and Python's waits hear signals there"

# By file: how many places, and why.
ALLOWED = {
    "native/base/wait.cpp": (1, "the one wait"),
    "native/driver/host/os.cpp": (4, BENEATH),
    "native/driver/host/os.hpp": (1, BENEATH),
    "native/driver/host/stream.cpp": (3, f"{BENEATH}; {OURS}; {JOIN}"),
    "native/driver/host/stream.hpp": (2, f"{BENEATH}; {OURS}"),
    "native/pool/ledger_listener.cpp": (1, JOIN),
    "native/pool/page_cache.cpp": (2, f"{OURS}; {JOIN}"),
    "native/share/ring_reader.cpp": (1, "joins a ring, and waits for nobody"),
    "native/tensor/host_copy.cpp": (1, "the half of a copy that another thread has taken already"),
    "native/trace/recorder.cpp": (4, f"{OURS}; {JOIN}; bounded: for room in a ring, and for the last flush at exit"),
    "src/tensormem/cli/program.py": (1, PROGRAM),
    "src/tensormem/distributed/dask/spilling.py": (
        1,
        "a while at most, in a thread of Dask's, which hears no signal",
    ),
    "src/tensormem/distributed/ray/metrics.py": (2, f"{OURS}; {JOIN}"),
    "src/tensormem/gl/own_thread.py": (4, f"{OURS}; {JOIN}, and is left behind after 5 s at exit"),
    "src/tensormem/lazy_names.py": (2, "before the compiled modules are there: half a millisecond at a time, bounded"),
    "src/tensormem/pools/defragmenter.py": (
        2,
        f"{OURS}; {JOIN}; a step waits for one short piece of packing",
    ),
    "src/tensormem/pytest_plugin.py": (1, "a result that is there"),
    "src/tensormem/reports/selftest/groups/conformance.py": (1, PROGRAM),
    "src/tensormem/reports/selftest/groups/sharing.py": (2, PROGRAM),
    "src/tensormem/reports/selftest/groups/streams.py": (5, PROGRAM),
    "src/tensormem/reports/selftest/groups/waiting.py": (1, PROGRAM),
    "src/tensormem/reports/selftest/process.py": (1, PROGRAM),
    "src/tensormem/sockets/server.py": (5, f"{OURS}; {JOIN}; a fork waits a second at most for its turn to end"),
    "src/tensormem/web/server.py": (1, JOIN),
}


def python_sites(path: Path) -> Iterator[tuple[int, str]]:
    """The calls in a module that can block, by what they are called."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).partition("[")[0]
        tries = name.endswith(".acquire") and any(ast.unparse(each) == "blocking=False" for each in node.keywords)
        if PYTHON.search(name) and not tries:
            yield node.lineno, name


def native_sites(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a native file that can block."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code = line.partition("//")[0]
        if found := NATIVE.search(code):
            yield number, found[0]


def all_sites() -> dict[str, list[tuple[int, str]]]:
    """Of every file that has any."""
    found: dict[str, list[tuple[int, str]]] = {}
    left_out = ("native/tests/", "native/bench/", "native/fuzz/", "src/tensormem/testing/")
    for pattern, sites in (("src/**/*.py", python_sites), ("native/**/*.?pp", native_sites)):
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(left_out) and (here := list(sites(path))):
                found[name] = here
    return found


def main() -> bool:
    """Whether the list is right."""
    found = all_sites()
    right = True
    for name in sorted(found.keys() | ALLOWED.keys()):
        sites, (allowed, _) = found.get(name, []), ALLOWED.get(name, (0, ""))
        if len(sites) != allowed:
            right = False
            print(f"{name}: {len(sites)} places that can block, {allowed} in scripts/lint_waits.py")
            print("".join(f"  line {number}: {what}\n" for number, what in sites), end="")
    return right


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
