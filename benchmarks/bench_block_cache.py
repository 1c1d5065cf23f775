"""Question: what do blocks of a KV cache cost in batches, and how much memory do they pin after an hour of requests?"""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

import tensormem as tm
from harness import Metric, Peer, Question, Row, time_peers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from kv_serving.models import blocks_for
from kv_serving.trace import (
    Request,
    find_conversations,
    find_trace,
    generate_trace,
    read_conversations,
    read_trace,
)

BATCH = 64
BLOCK = 128 << 10
SMALL_BLOCK = 4 << 10
MANY = 1_000_000
LOOKED_UP = 4096
CONVERSATIONS = 3000
SLAB_BLOCKS = 4096
TOKENS_PER_SECOND = 20


class FreeList:
    """Numbers of blocks in a list; nothing is checked."""

    def __init__(self) -> None:
        self._free = list(range(SLAB_BLOCKS))

    def allocate(self, count: int) -> list[int]:
        taken = self._free[-count:]
        del self._free[-count:]
        return taken

    def deallocate(self, ids: list[int]) -> None:
        self._free += ids


class NumpySlab:
    """Numbers of blocks in an array used as a stack; nothing is checked."""

    def __init__(self) -> None:
        self._free = numpy.arange(SLAB_BLOCKS)
        self._left = SLAB_BLOCKS

    def allocate(self, count: int) -> numpy.ndarray:
        self._left -= count
        return self._free[self._left : self._left + count].copy()

    def deallocate(self, ids: numpy.ndarray) -> None:
        self._free[self._left : self._left + len(ids)] = ids
        self._left += len(ids)


class TorchSlab:
    """The same with a tensor."""

    def __init__(self) -> None:
        self._free = torch.arange(SLAB_BLOCKS)
        self._left = SLAB_BLOCKS

    def allocate(self, count: int) -> torch.Tensor:
        self._left -= count
        return self._free[self._left : self._left + count].clone()

    def deallocate(self, ids: torch.Tensor) -> None:
        self._free[self._left : self._left + len(ids)] = ids
        self._left += len(ids)


def churn(cache: tm.BlockCache, requests: list[Request]) -> list[int]:
    """Serves the trace; every fiftieth block is a prefix that stays. Gives the ids that are live at the end."""
    source = random.Random(1)
    leaving: dict[int, list[int]] = {}
    kept: list[int] = []
    now = 0
    for request in requests:
        while now <= request.arrival:
            if ended := leaving.pop(now, None):
                source.shuffle(ended)
                kept += ended[::50]
                cache.deallocate([number for place, number in enumerate(ended) if place % 50])
            now += 1
        end = now + 1 + request.generated // TOKENS_PER_SECOND
        leaving.setdefault(end, []).extend(cache.allocate(blocks_for(request.tokens)))
    for ended in leaving.values():
        cache.deallocate(ended)
    cache.deallocate(kept[: -len(kept) // 8])  # most prefixes go cold as well
    return kept[-len(kept) // 8 :]


def hour() -> list[Request]:
    file = find_trace()
    return generate_trace() if file is None else read_trace(file)


def conversations() -> list[Request]:
    file = find_conversations()
    if file is None:
        return generate_trace(CONVERSATIONS, mean=8.5, spread=1.0)
    return read_conversations(file, CONVERSATIONS)


def idle_memory(requests: list[Request], block: int, compact: bool) -> dict[str, float]:
    with tm.BlockCache("1TiB", block, release_threshold=0) as cache:
        churn(cache, requests)
        if compact:
            cache.compact()
        cache.trim()
        stats = cache.stats()
        floor = stats.floor_pages * stats.page_size
        return {"idle": stats.physical_usage / floor, "peak": stats.peak_physical_usage / floor}


def measure(say: Callable[[str], None]) -> list[Row]:
    say(f"batches of {BATCH}")
    ours = tm.BlockCache("16GiB", BLOCK)
    ours.allocate(1000)
    makers: dict[str, Any] = {
        "tensormem": ours,
        "Python list, unchecked": FreeList(),
        "numpy stack, unchecked": NumpySlab(),
        "torch stack, unchecked": TorchSlab(),
    }
    work = [
        Peer(name, "free(take(n))", {"take": maker.allocate, "free": maker.deallocate, "n": BATCH})
        for name, maker in makers.items()
    ]
    speeds = {name: {"rate": BATCH / timing.median_ns * 1000} for name, timing in time_peers(work).items()}
    ids = ours.allocate(LOOKED_UP)
    looks = [Peer(name, "look(ids)", {"look": look, "ids": ids}) for name, look in (("slots", ours.slots),)]
    speeds["tensormem"]["slots"] = time_peers(looks)["slots"].median_ns / 1000
    ours.close()
    with tm.BlockCache("16GiB", SMALL_BLOCK) as large:
        large.allocate(MANY)
        peer = Peer("many", "free(take(n))", {"take": large.allocate, "free": large.deallocate, "n": BATCH})
        rate = BATCH / time_peers([peer])["many"].median_ns * 1000
        speeds["tensormem, a million live"] = {"rate": rate}
    say("an hour of requests, without compaction and with it")
    speeds["tensormem"] |= idle_memory(hour(), BLOCK, compact=True)
    speeds["tensormem, not compacted"] = {
        "rate": speeds["tensormem"]["rate"],
        **idle_memory(hour(), BLOCK, compact=False),
    }
    say("an hour of conversations with long contexts")
    speeds["tensormem"]["long"] = idle_memory(conversations(), SMALL_BLOCK, compact=True)["idle"]
    speeds["tensormem, not compacted"]["long"] = idle_memory(conversations(), SMALL_BLOCK, compact=False)["idle"]
    for name in makers.keys() - {"tensormem"}:
        speeds[name]["idle"] = speeds["tensormem"]["peak"]  # a slab has the memory of its peak, whatever is in it
    return [Row(name, None, values) for name, values in speeds.items()]


QUESTION = Question(
    name="block_cache",
    title="Blocks of a KV cache: speed in batches, and memory pinned when idle",
    asks=f"Batches of {BATCH} blocks taken and given back, in million blocks a second. Ours checks every id and can "
    "move blocks; the stacks of numbers check nothing and own no memory. Then an hour of conversation requests, of "
    "which a few blocks stay: the memory held, over that of as few pages as could hold them. The stacks number a "
    "slab, which holds the memory of its peak. The second trace has longer contexts, and smaller blocks.",
    case_label="",
    metrics=[
        Metric("rate", "million blocks a second, taken and given back"),
        Metric("slots", f"slots of {LOOKED_UP:,} ids, in us"),
        Metric("idle", "idle memory pinned / packed floor"),
        Metric("long", "the same, after conversations with long contexts"),
    ],
    measure=measure,
    packages=("tensormem", "numpy", "torch"),
)
