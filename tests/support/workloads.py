"""Owns: workloads that tests read: files generated here with known shapes, and the real ones if this machine has them.

Real ones add cases; a test never needs them.
"""

import pickle
import random
from pathlib import Path

import pytest

from tensormem.testing.plan_instances import Cut, cut_rectangle
from tensormem.testing.workloads import workload_files
from tensormem.trace import Lifetime, write_lifetimes

CAPACITY = 1_048_576
MIB = 1 << 20


def training_step(layers: int = 60, seed: int = 3) -> list[Lifetime]:
    """A step of training: weights that stay, results kept until the way back, gradients, short scratch buffers."""
    source = random.Random(seed)
    steps = 2 * layers
    blocks = []
    for layer in range(layers):
        size = source.randrange(1, 64) * 65_536
        blocks.append(Lifetime(f"weights {layer}", 0, 2 * steps + 2, 4 * size))
        blocks.append(Lifetime(f"result {layer}", 2 * layer + 1, 2 * (steps - layer), size + source.randrange(4096)))
        blocks.append(Lifetime(f"gradient {layer}", 2 * (steps - layer), 2 * steps + 1, 4 * size))
        for pass_ in (layer, steps - 1 - layer):
            start = 2 * pass_ + 1
            blocks += [
                Lifetime(f"scratch {start} {n}", start, start + 1, source.randrange(1, 2 * size)) for n in (0, 1)
            ]
    return blocks


def _write_step(path: Path) -> None:
    write_lifetimes(training_step(), path)


def _write_hard_instance(path: Path) -> None:
    write_lifetimes(cut_rectangle(120, cut=Cut.PINWHEEL, capacity=CAPACITY, seed=11), path)


def _write_snapshot(path: Path) -> None:
    """What PyTorch's own allocator would have written of that step: events of one device, and its segments."""
    addresses: dict[str, int] = {}
    places: dict[int, int] = {}
    events: list[dict[str, object]] = []
    steps = [(each.lower, 1, each) for each in training_step()] + [(each.upper, 0, each) for each in training_step()]
    top = 1 << 32
    for when, starts, block in sorted(steps, key=lambda step: (step[0], step[1], step[2].id)):
        nbytes = -(-block.size // 512) * 512
        event = {"size": nbytes, "stream": 0, "time_us": 1_700_000_000_000_000 + 100 * when + len(events), "frames": []}
        if starts:
            address = places.pop(nbytes, 0) or top
            top = max(top, address + nbytes)
            addresses[block.id] = address
            events.append({"action": "alloc", "addr": address, **event})
        elif not block.id.startswith("weights"):  # weights are still there when the snapshot is taken
            address = addresses.pop(block.id)
            places[nbytes] = address
            events.append({"action": "free_requested", "addr": address, **event})
            events.append({"action": "free_completed", "addr": address, **event})
    sizes = {each.id: each.size for each in training_step()}
    blocks = [
        {
            "address": at,
            "size": -(-size // 512) * 512,
            "requested_size": size,
            "state": "active_allocated",
            "frames": [],
        }
        for at, size in sorted((address, sizes[name]) for name, address in addresses.items())
    ]
    segment = {
        "device": 0, "address": 1 << 32, "total_size": top - (1 << 32), "allocated_size": 0, "active_size": 0,
        "requested_size": 0, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
        "frames": [], "blocks": blocks,
    }  # fmt: skip
    document = {"segments": [segment], "device_traces": [events], "allocator_settings": {}, "external_annotations": []}
    path.write_bytes(pickle.dumps(document, protocol=4))


def generated(pattern: str, folder: Path) -> Path:
    """Write the workload of ours that stands beside the real ones of this pattern."""
    hard, snapshot = pattern.startswith("minimalloc/"), pattern.endswith(".pickle")
    path = folder / ("snapshot.pickle" if snapshot else "lifetimes.csv")
    write = _write_snapshot if snapshot else _write_hard_instance if hard else _write_step
    write(path)
    return path


@pytest.fixture
def workload(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The file that a case of `cases` stands for."""
    return generated(request.param, tmp_path) if isinstance(request.param, str) else request.param


def cases(*patterns: str, most: int | None = None) -> list[object]:
    """Parameters for a test with the fixture `workload`: the generated file of each pattern, then the real ones."""
    return [
        case
        for pattern in patterns
        for case in (
            pytest.param(pattern, id=f"generated {pattern}"),
            *(pytest.param(path, id=f"{path.parent.name}/{path.name}") for path in workload_files(pattern)[:most]),
        )
    ]
