"""Question: what does recording add to a pooled allocation, taken and given back from Python?"""

import os
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import tensormem as tm
from harness import NANOSECONDS, Peer, Question, Row, summarise, time_peers, timing_row

NBYTES = 1024
ROUNDS = 9
STATEMENT = "free(take(n))"


def time_one(name: str, mr: tm.mr.DeviceMemoryResource) -> Row:
    """One way alone: what is being recorded is a matter of the process, so peers cannot take turns here."""
    names = {"take": mr.allocate, "free": mr.deallocate, "n": NBYTES}
    # Short turns, with time for the file between them: a program that does nothing else would outrun any disk.
    timings = [time_peers([Peer(name, STATEMENT, names)], repeats=1, turn_ns=500_000)[name] for _ in range(ROUNDS)]
    return timing_row(name, None, summarise([timing.median_ns for timing in timings]))


def recorded(name: str, mr: tm.mr.DeviceMemoryResource, *, stacks: bool = False) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        with tm.trace(Path(folder) / "run.tmt", stacks=stacks) as recording:
            row = time_one(name, mr)
        if recording.report.dropped:
            raise RuntimeError(f"{name}: {recording.report.dropped} events were lost, so its time means nothing")
        return row


def logged(folder: str) -> tm.mr.DeviceMemoryResource:
    sink = tm.mr.CsvSink(os.path.join(folder, "log.csv"))
    return tm.mr.LoggingResourceAdaptor(tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), "64MiB"), sink=sink)


def traced_by_python(pool: tm.mr.DeviceMemoryResource) -> Row:
    tracemalloc.start(1)
    try:
        names: dict[str, object] = {"make": bytearray, "n": NBYTES}
        timing = time_peers([Peer("bytearray under tracemalloc", "make(n)", names)])["bytearray under tracemalloc"]
        return timing_row("bytearray under tracemalloc", None, timing)
    finally:
        tracemalloc.stop()


def measure(say: Callable[[str], None]) -> list[Row]:
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), "64MiB")
    tracking = tm.mr.TrackingResourceAdaptor(tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), "64MiB"))
    stacks = tm.mr.TrackingResourceAdaptor(
        tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), "64MiB"), capture_stacks=True
    )
    say("nothing recorded, then recorded, then the observers there were before")
    with tempfile.TemporaryDirectory() as folder:
        return [
            time_one("off", pool),
            recorded("recording", pool),
            recorded("recording, with stacks", pool, stacks=True),
            time_one("tracking adaptor", tracking),
            time_one("tracking adaptor, with stacks", stacks),
            time_one("logging adaptor, RMM's CSV", logged(folder)),
            traced_by_python(pool),
        ]


QUESTION = Question(
    name="tracing",
    title="Recording: what an event costs",
    asks=f"One block of {NBYTES} bytes taken from a pool and given back: two events. PyTorch's memory history records "
    "on GPUs only, and there is none here; Python's own tracemalloc stands for what a general tool costs.",
    case_label="",
    metrics=[NANOSECONDS],
    measure=measure,
    ours="recording",
    packages=("tensormem",),
)
