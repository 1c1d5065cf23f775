"""Streams by RMM's names: made, wrapped, compared, pooled."""

import os
from typing import Any

import pytest

import tensormem as tm
from tensormem.rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from tensormem.rmm.pylibrmm.stream import (
    DEFAULT_STREAM,
    LEGACY_DEFAULT_STREAM,
    PER_THREAD_DEFAULT_STREAM,
    CudaStreamFlags,
    Stream,
)
from tensormem.testing.gpus import SimulatedGpu


class Theirs:
    def __init__(self, version: int, handle: int) -> None:
        self.answer = version, handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return self.answer


def test_streams_are_equal_by_handle() -> None:
    one, other = Stream(), Stream()
    assert one == Stream(one) and hash(one) == hash(Stream(one))
    assert one != other and len({one, other, Stream(other)}) == 2
    assert DEFAULT_STREAM.is_default() and LEGACY_DEFAULT_STREAM.is_default() and not one.is_default()
    assert not PER_THREAD_DEFAULT_STREAM.is_default()
    one.synchronize()
    DEFAULT_STREAM.synchronize()


def test_a_stream_of_another_library_is_wrapped() -> None:
    assert Stream(Theirs(0, 0x7F00)).__cuda_stream__() == (0, 0x7F00)
    with pytest.raises(NotImplementedError, match="version: '1'"):
        Stream(Theirs(1, 2))
    wrong: Any = "stream"
    with pytest.raises(TypeError):
        Stream(wrong)
    with pytest.raises(ValueError, match="flags may only be specified when obj is None"):
        Stream(DEFAULT_STREAM, flags=CudaStreamFlags.NON_BLOCKING)


def test_a_stream_of_ours_keeps_its_handle(gpu: SimulatedGpu) -> None:
    with tm.Stream("cuda:0") as ours:
        assert Stream(ours).__cuda_stream__() == ours.__cuda_stream__()
        Stream(ours).synchronize()


@pytest.mark.parametrize("flags", CudaStreamFlags)
def test_a_pool_hands_out_its_streams_in_turn(flags: CudaStreamFlags) -> None:
    pool = CudaStreamPool(3, flags)
    streams = [pool.get_stream() for _ in range(3)]
    assert len(set(streams)) == 3 == pool.get_pool_size() and DEFAULT_STREAM not in streams
    assert [pool.get_stream(number) for number in range(3)] == streams
    with pytest.raises(ValueError, match="at least one"):
        CudaStreamPool(0)


def test_a_pool_of_a_million_streams_makes_those_that_are_used() -> None:
    threads = len(os.listdir("/proc/self/task"))
    pool = CudaStreamPool(2**20)
    assert pool.get_pool_size() == 2**20
    assert pool.get_stream(2**20 + 5) == pool.get_stream(5) != pool.get_stream(6)
    assert len(os.listdir("/proc/self/task")) <= threads + 3
    wrong: Any = 2.5
    with pytest.raises(TypeError):
        CudaStreamPool(wrong)
