"""What could not run here is said at the end of the session, and is a failure when CI=true.

Owns: the closing list "Could not run here:". It holds the reason of every skipped test and what earlier steps of
`make test` wrote to the file named by COULD_NOT_RUN (a system package, a native test).
"""

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support.workloads import workload  # noqa: F401 (a fixture)

_LEFT_OUT = pytest.StashKey[int]()

# A shell that starts a command in the background has it ignore Ctrl-C; the tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def _do_not_walk_what_stays() -> None:
    # Many tests collect garbage to see what is left. What was there before a module stays: do not walk it.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def opengl() -> None:
    """Skips a test where OpenGL does not run, and says why."""
    from tensormem.gl import why_not

    reason = why_not()
    if reason is not None:
        pytest.skip(f"OpenGL: {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    # A skip is reported as (path, line, "Skipped: why").
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return why.removeprefix("Skipped: ")


def _skips(reports: list[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """One line each; tests of one file that were skipped for one reason share a line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        groups.setdefault((report.nodeid.split("::")[0], _reason(report)), []).append(report.nodeid)
    return [
        f"{nodeids[0] if len(nodeids) == 1 else f'{file} ({len(nodeids)} tests)'}: {why}"
        for (file, why), nodeids in groups.items()
    ]


def could_not_run(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    file = Path(os.environ.get("COULD_NOT_RUN", os.devnull))
    earlier = file.read_text().splitlines() if file.exists() else []
    return [*earlier, *_skips(skipped)]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if hasattr(session.config, "workeroutput"):  # one of several processes: the one that started it judges
        session.config.workeroutput["left_out"] = session.config.stash.get(_LEFT_OUT, 0)
        return
    if exitstatus == pytest.ExitCode.OK and os.environ.get("CI") == "true" and could_not_run(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_collection_finish(session: pytest.Session) -> None:
    """Counts the cases of suites that do not apply to what is under test: they are left out by name, and said."""
    suites = {item.getparent(pytest.Class) for item in session.items}
    left_out = [getattr(suite.obj, "left_out", {}) for suite in suites if suite is not None]
    session.config.stash[_LEFT_OUT] = sum(map(len, left_out))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Every process collects every test, so that each knows the count of all."""
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash.get(_LEFT_OUT, 0)
    if left_out:
        terminalreporter.line(f"{left_out} cases of suites do not apply to what they test, and were left out by name.")
    reasons = could_not_run(config)
    if not reasons:
        return
    terminalreporter.section("Could not run here:", sep="-")
    for reason in reasons:
        terminalreporter.line(f"  {reason}")
    if os.environ.get("CI") == "true":
        terminalreporter.line("CI=true: everything has to run, so this session failed.", red=True)
