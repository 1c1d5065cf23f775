"""Question: how much memory does an allocator need for what real PyTorch runs had live at their peak?"""

import csv
from collections.abc import Callable
from pathlib import Path

import tensormem as tm
from harness import Metric, Question, Row
from tensormem.testing.workloads import workload_files

Event = tuple[int, int, int, int]  # when, 1 for the beginning, which block, bytes


def generated() -> list[Event]:
    """Layers that keep their results until they come back for them, in place of the real traces."""
    sizes = [(7919 * i) % (8 << 20) + 512 for i in range(1, 400)]
    return sorted(
        event
        for i, size in enumerate(sizes)
        for event in ((i, 1, i, size), ((800 - i) if i % 3 else i + 2, 0, i, size))
    )


def traces(say: Callable[[str], None]) -> dict[str, list[Event]]:
    found = workload_files("torch/*.csv")
    if not found:
        say("NO TRACES beside the project: a generated one stands in")
        return {"generated": generated()}
    return {file.stem: read(file) for file in found}


def read(file: Path) -> list[Event]:
    events = []
    with file.open() as lines:
        for row in csv.DictReader(lines):
            block, size = int(row["id"]), int(row["size"])
            events += [(int(row["lower"]), 1, block, size), (int(row["upper"]), 0, block, size)]
    return sorted(events)


def peak_live(events: list[Event]) -> int:
    live = peak = 0
    for _, begins, _, size in events:
        live += size if begins else -size
        peak = max(peak, live)
    return peak


def replay(resource: tm.mr.DeviceMemoryResource, events: list[Event]) -> None:
    blocks = {}
    for _, begins, block, size in events:
        if begins:
            blocks[block] = resource.allocate(size)
        else:
            resource.deallocate(blocks.pop(block))


def elastic(events: list[Event]) -> int:
    resource = tm.mr.ElasticMemoryResource(release_threshold="1TiB")
    replay(resource, events)
    return resource.peak_physical_bytes


def pool(events: list[Event]) -> int:
    """The most that the pool had from its upstream; its memory is never touched."""
    counted = tm.mr.StatisticsResourceAdaptor(tm.mr.HostMemoryResource())
    replay(tm.mr.PoolMemoryResource(counted), events)
    return counted.allocation_counts.peak_bytes


def measure(say: Callable[[str], None]) -> list[Row]:
    rows = []
    for case, (name, events) in enumerate(traces(say).items(), 1):
        most = peak_live(events)
        for peer, run in (("tensormem elastic", elastic), ("tensormem pool", pool)):
            say(f"{name}: {peer}")
            rows.append(Row(peer, case, {"peak": run(events) / most, "live_gib": most / 2**30}))
    return rows


QUESTION = Question(
    name="torch_replay",
    title="Replaying PyTorch's allocations: memory held at the peak",
    asks="The block lifetimes of real training and inference steps, in their order, through a resource. Peak of the "
    "physical memory over the peak of the live bytes: 1 is perfect; PyTorch's own allocator had 1.02 to 1.11 on such "
    "runs. The cases, in order: gpt_medium_128_training, gpt_medium_512_inference, gpt_medium_512_training.",
    case_label="trace",
    metrics=[
        Metric("peak", "peak physical / peak live", logarithmic=False),
        Metric("live_gib", "peak live (GiB)", logarithmic=False),
    ],
    measure=measure,
    ours="tensormem elastic",
    packages=("tensormem",),
)
