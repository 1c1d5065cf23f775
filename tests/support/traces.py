"""Owns: small traces for tests, recorded here."""

from pathlib import Path

import pytest

import tensormem as tm


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
