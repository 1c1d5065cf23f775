"""Question: what does one adaptor layer add to a pooled allocation, taken and given back from Python?"""

from collections.abc import Callable

import tensormem as tm
from harness import NANOSECONDS, Peer, Question, Row, time_peers, timing_row

NBYTES = 1024


def stacks() -> dict[str, tm.mr.DeviceMemoryResource]:
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), "64MiB")
    five: tm.mr.DeviceMemoryResource = pool
    for _ in range(5):
        five = tm.mr.LimitingResourceAdaptor(five, "1GiB")
    return {
        "pool alone": pool,
        "+ limiting": tm.mr.LimitingResourceAdaptor(pool, "1GiB"),
        "+ statistics": tm.mr.StatisticsResourceAdaptor(pool),
        "+ aligned": tm.mr.AlignedResourceAdaptor(pool, 256),
        "+ pressure": tm.mr.PressureResourceAdaptor(pool, lambda level, used: None, warn="1GiB", critical="2GiB"),
        "+ fault injection": tm.mr.FaultInjectionResourceAdaptor(pool, tag="never used"),
        "+ failure callback": tm.mr.FailureCallbackResourceAdaptor(pool, lambda nbytes: False),
        "+ logging (ring)": tm.mr.LoggingResourceAdaptor(pool, sink=tm.mr.RingSink(4096)),
        "+ tracking": tm.mr.TrackingResourceAdaptor(pool),
        "+ debug guard": tm.mr.DebugGuardResourceAdaptor(pool, capture_stacks=False),
        "+ five times limiting": five,
    }


def measure(say: Callable[[str], None]) -> list[Row]:
    say("one layer each")
    peers = [
        Peer(name, "free(take(n))", {"take": mr.allocate, "free": mr.deallocate, "n": NBYTES})
        for name, mr in stacks().items()
    ]
    return [timing_row(name, None, timing) for name, timing in time_peers(peers).items()]


QUESTION = Question(
    name="adaptors",
    title="Adaptors: what one layer adds",
    asks=f"One block of {NBYTES} bytes taken from a pool and given back, through one adaptor. Logging, tracking and "
    "the debug guard watch every call and are not meant for the hot path.",
    case_label="",
    metrics=[NANOSECONDS],
    measure=measure,
    ours="pool alone",
    packages=("tensormem",),
)
