"""Owns: what tests of pages share: the recording of a small server, its page, and what the trace itself says of it."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

import pytest
from click.testing import CliRunner

import tensormem as tm
from support.browser import OpenedPage
from tensormem.cli.main import cli
from tensormem.trace import Event, EventKind, Trace

VIEWS = ("usage", "overview", "addresses", "flame")
By = Literal["space", "tag", "resource"]


class Show(Protocol):
    """Opens the page of a trace."""

    def __call__(self, trace: Path, *options: str, scheme: Literal["light", "dark"] = "light") -> OpenedPage: ...


def serve_requests(path: Path) -> None:
    """A KV cache in small: caches grow block by block in elastic pages, scratch memory comes and goes in a pool."""
    chance = random.Random(5)
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    elastic = tm.mr.ElasticMemoryResource()
    caches: dict[int, list[tm.mr.DeviceBlock]] = {}
    with tm.trace(path, stacks=True):
        weights = [pool.allocate("1MiB", tag="weights") for _ in range(4)]
        for step in range(120):
            if len(caches) < 6:
                caches[step] = []
            with tm.tag("scratch"):
                scratch = pool.allocate(chance.randrange(1, 200) * 1024)
            for request in list(caches):
                caches[request].append(elastic.allocate(65536, tag="kv-cache"))
                if chance.random() < 0.05:
                    for block in caches.pop(request)[1:]:
                        elastic.deallocate(block)
            pool.deallocate(scratch)
        with pytest.raises(tm.errors.OutOfBudget):
            tm.mr.LimitingResourceAdaptor(pool, "1MiB").allocate("2MiB")
    del weights, caches


def report(trace: Path, output: Path, *options: str) -> Path:
    result = CliRunner().invoke(cli, ["report", str(trace), "-o", str(output), "--force", *options])
    assert result.exit_code == 0, result.output
    return output


def text_trace(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["id,lower,upper,size", *rows, ""]))
    return path


def out_at(trace: Trace, time_ns: int, by: By) -> Counter[str]:
    """What each group had out at a time, added up event by event."""
    names: dict[By, Callable[[Event], str]] = {
        "space": lambda event: trace.names.space(event.resource),
        "tag": lambda event: event.tag or "untagged",
        "resource": lambda event: trace.names.resource(event.resource),
    }
    out: Counter[str] = Counter()
    for event in trace.events():
        if event.time_ns > time_ns:
            break
        if event.depth == 0 and event.kind in (EventKind.ALLOCATE, EventKind.DEALLOCATE):
            out[names[by](event)] += event.nbytes if event.kind is EventKind.ALLOCATE else -event.nbytes
    return +out


def live_at(trace: Trace, event_number: int) -> tuple[int, int]:
    """(blocks, bytes) that the program had after an event, counted from 0."""
    live: dict[tuple[int, int], int] = {}
    for number, event in enumerate(trace.events()):
        if number > event_number:
            break
        if event.depth == 0 and event.kind is EventKind.ALLOCATE:
            live[event.resource, event.generation] = event.nbytes
        elif event.depth == 0 and event.kind is EventKind.DEALLOCATE:
            live.pop((event.resource, event.generation), None)
    return len(live), sum(live.values())
