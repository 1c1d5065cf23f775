"""Owns: small traces for tests: recorded here, and the real ones of other tools if this machine has them."""

from pathlib import Path

import pytest

import tensormem as tm

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def real_data(*parts: str) -> Path:
    """A file of the real workloads; the test says loudly when it is not there."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"could not run: {path.name} of the real workloads is not on this machine")
    return path


def record_steps(path: Path, *, stacks: bool = False, steps: int = 3) -> None:
    """A program in small: weights that stay, activations that come and go, a failure, a counter."""
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    with tm.trace(path, stacks=stacks):
        weights = pool.allocate("64KiB", tag="weights")
        for step in range(steps):
            with tm.tag("activations"):
                blocks = [pool.allocate(1024 * (1 + number)) for number in range(4)]
            tm.trace.counter("loss", 100 - step)
            for block in blocks:
                pool.deallocate(block)
        with pytest.raises(tm.errors.OutOfMemory):
            tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), maximum_pool_size="1MiB").allocate("2MiB")
        leaked = pool.allocate(500, tag="leaked")
    del weights, leaked
