"""Owns: memory in tests: limits and leaks as marks, a summary at the end of the run, and the same as JSON.

    @pytest.mark.limit_memory("24MiB")                 # fails if more was ever out at once
    @pytest.mark.limit_leaks("1KiB", space="gpu:0")    # fails if more is still out at the end

What counts is memory of every kind that the test made in a space without naming a resource, in all threads: tensors,
shared memory, pixel buffers, pages of elastic pools. The space is main memory unless named.
Must not know: how memory is counted.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from tensormem.spaces import LogicalMemorySpace

_MARKS = {
    "limit_memory": "limit_memory(nbytes, space='main'): fail if more than this was ever out at once",
    "limit_leaks": "limit_leaks(nbytes, space='main'): fail if more than this is still out at the end",
}
_SHOWN = 10


class Measured(NamedTuple):
    """What one test did in one space."""

    test: str
    space: str
    peak_bytes: int
    leaked_bytes: int
    allocations: int
    total_bytes: int


class _Watch:
    """A limit without an end over one space, in the whole process, during one test: it counts."""

    def __init__(self, space: LogicalMemorySpace, stacks: bool) -> None:
        from tensormem.memories.mem import resource_of
        from tensormem.mr import limit
        from tensormem.mr.current import measure_everywhere

        self.space = space
        resource_of(space)  # says why, where there is no such memory
        self.counted = limit(space=space)
        self._scope = ExitStack()
        self._trackers = self._scope.enter_context(measure_everywhere(self.counted, str(space), stacks=stacks))

    def close(self) -> None:
        self._scope.close()

    def result(self, test: str) -> Measured:
        seen = self.counted
        return Measured(test, str(self.space), seen.peak_bytes, seen.used, seen.total_count, seen.total_bytes)

    def largest(self) -> str:
        """What is still out, the largest first."""
        from tensormem.units import format_size

        lines = []
        blocks = [block for tracker in self._trackers for block in tracker.outstanding()]
        for block in sorted(blocks, key=lambda block: -block.nbytes)[:_SHOWN]:
            lines.append(f"  {format_size(block.nbytes)}, tag {block.tag!r}")
            lines += [f"    {line}" for line in block.stack.rstrip().splitlines()]
        elastic = self.counted.used - sum(block.nbytes for block in blocks)
        if elastic > 0:
            lines.append(f"  {format_size(elastic)} in pages of elastic pools, caches and buffers")
        return "\n".join(lines)


class _Limit(NamedTuple):
    kind: str
    nbytes: int
    space: LogicalMemorySpace

    def verdict(self, watch: _Watch, result: Measured) -> str | None:
        from tensormem.units import format_size

        limit, where = format_size(self.nbytes), f"of {self.space} memory"
        if self.kind == "limit_memory" and result.peak_bytes > self.nbytes:
            return (
                f"the test had {format_size(result.peak_bytes)} {where} at once, in {result.allocations:,} "
                f"allocations; its limit is {limit}"
            )
        if self.kind == "limit_leaks" and result.leaked_bytes > self.nbytes:
            leaked = format_size(result.leaked_bytes)
            return f"the test left {leaked} {where} behind; its limit is {limit}\n{watch.largest()}"
        return None


def _limits(item: pytest.Item) -> list[_Limit]:
    found = []
    for kind in _MARKS:
        for mark in item.iter_markers(kind):
            try:
                found.append(_limit(kind, *mark.args, **mark.kwargs))
            except (TypeError, ValueError) as wrong:
                raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.{kind}: {wrong}") from None
    return found


def _limit(kind: str, nbytes: int | str, space: Any = "main") -> _Limit:
    from tensormem.spaces import LogicalMemorySpace
    from tensormem.units import parse_size

    return _Limit(kind, parse_size(nbytes), LogicalMemorySpace.parse(space))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--memory`, and where to write it."""
    group = parser.getgroup("tensormem", "memory of tests, by tensormem")
    group.addoption(
        "--memory", action="store_true", help="measure the main memory of every test, and list the largest at the end"
    )
    group.addoption("--memory-json", metavar="FILE", help="write what was measured as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marks, and keeps the results of this run."""
    for line in _MARKS.values():
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(_Run(config), "tensormem-memory-run")


class _Run:
    """The results of one run."""

    def __init__(self, config: pytest.Config) -> None:
        self._all = config.getoption("--memory") or config.getoption("--memory-json") is not None
        self._file = config.getoption("--memory-json")
        self._show = bool(config.getoption("--memory"))
        self.results: list[Measured] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        limits = _limits(item)
        if not limits and not self._all:
            return (yield)
        watches = self._start(limits)
        try:
            result = yield
            gc.collect()  # what only a cycle holds is no leak
            self._judge(item, limits, watches)
            return result
        finally:
            for watch in watches.values():
                watch.close()

    def _start(self, limits: list[_Limit]) -> dict[LogicalMemorySpace, _Watch]:
        from tensormem.spaces import main

        spaces = dict.fromkeys([limit.space for limit in limits] + ([main] if self._all else []))
        leaky = {limit.space for limit in limits if limit.kind == "limit_leaks"}
        watches: dict[LogicalMemorySpace, _Watch] = {}
        try:
            for space in spaces:
                watches[space] = _Watch(space, stacks=space in leaky)
        except BaseException:
            for watch in watches.values():
                watch.close()
            raise
        return watches

    def _judge(self, item: pytest.Item, limits: list[_Limit], watches: dict[LogicalMemorySpace, _Watch]) -> None:
        results = {space: watch.result(item.nodeid) for space, watch in watches.items()}
        self.results += results.values()
        said = [limit.verdict(watches[limit.space], results[limit.space]) for limit in limits]
        if wrong := "\n".join(filter(None, said)):
            pytest.fail(wrong, pytrace=False)

    def pytest_sessionfinish(self) -> None:
        if self._file is not None:
            rows = [measured._asdict() for measured in self.results]
            Path(self._file).write_text(json.dumps({"version": 1, "tests": rows}, indent=1) + "\n", encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._show or not self.results:
            return
        from tensormem.units import format_size

        terminalreporter.section("memory")
        largest = sorted(self.results, key=lambda each: each.peak_bytes, reverse=True)[:_SHOWN]
        terminalreporter.write_line(f"{'peak':>10}  {'left':>10}  {'blocks':>9}  test")
        for each in largest:
            peak, left = format_size(each.peak_bytes), format_size(each.leaked_bytes)
            terminalreporter.write_line(f"{peak:>10}  {left:>10}  {each.allocations:>9,}  {each.test} ({each.space})")
