"""Owns: small traces for tests, recorded here."""

import struct
import zlib
from pathlib import Path

import pytest

import tensormem as tm
from tensormem.trace.format import CHUNK, HEADER_BYTES


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


def with_checksums(data: bytearray) -> bytes:
    """The same with checksums made right again, so that damage gets further in."""
    offset = HEADER_BYTES
    struct.pack_into("<I", data, HEADER_BYTES - 4, zlib.crc32(data[: HEADER_BYTES - 4]))
    while offset + CHUNK.size <= len(data):
        (nbytes,) = struct.unpack_from("<Q", data, offset + 16)
        end = min(offset + CHUNK.size + nbytes, len(data))
        struct.pack_into("<I", data, offset + 48, zlib.crc32(data[offset + CHUNK.size : end]))
        struct.pack_into("<I", data, offset + CHUNK.size - 4, zlib.crc32(data[offset : offset + CHUNK.size - 4]))
        if end <= offset + CHUNK.size:
            break
        offset = end
    return bytes(data)
