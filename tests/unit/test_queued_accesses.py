"""Copies and fills on a stream of memory whose owner is told of every access: queued with their brackets, never waited
for, and what fails when their turn comes is heard."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tensormem as tm
from support.bracketed import Bracketed
from support.hooks import unraisable
from support.opengl import foreign_context, needs_opengl
from tensormem.gl import GlContext
from tensormem.memories import pbo
from tensormem.testing import simulated_gpu
from tensormem.testing.gpus import SimulatedGpu
from tensormem.testing.resources import Gate

NBYTES = 24
MIB = 1 << 20


@contextmanager
def held(stream: tm.Stream) -> Iterator[Gate]:
    """The stream does nothing until the gate is opened, at the latest at the end."""
    gate = Gate()
    gate.hold(stream)
    try:
        yield gate
    finally:
        gate.open()


def bracketed(nbytes: int = NBYTES) -> tuple[Bracketed, tm.Tensor]:
    owner = Bracketed(nbytes)
    return owner, tm.Tensor(owner.storage(), "uint8", (nbytes,))


def _pbo(persistent: bool, nbytes: int = NBYTES) -> tm.Tensor:
    return tm.Tensor(pbo.allocate(nbytes, persistent=persistent), "uint8", (nbytes,))


@pytest.fixture(params=["cuda", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    with simulated_gpu(devices=1, memory="64MiB", vendor=request.param) as made:
        yield made


MAKERS: dict[str, Callable[[], tm.Tensor]] = {
    "an owner with brackets": lambda: bracketed()[1],
    "a pixel buffer that stays mapped": lambda: _pbo(True),
    "a pixel buffer that is mapped each time": lambda: _pbo(False),
}
each_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@needs_opengl
@each_maker
def test_copies_and_fills_on_a_stream_do_not_wait_for_it(make: Callable[[], tm.Tensor]) -> None:
    copied, filled, source = make(), make(), make().fill_(5)
    plain = tm.zeros(NBYTES, "uint8")
    with tm.Stream("main") as stream, held(stream) as gate:
        copied.copy_(source, stream=stream)  # each would wait for ever: nobody else opens the gate
        plain.copy_(source, stream=stream)
        filled.fill_(6, stream=stream)
        assert not copied.ready and not plain.ready and not filled.ready
        source.close()  # the stream keeps it
        gate.open()
        stream.synchronize()
        assert copied.tolist() == plain.tolist() == [5] * NBYTES and filled.tolist() == [6] * NBYTES


@needs_opengl
@each_maker
def test_what_is_closed_or_dropped_with_work_queued_goes_behind_that_work(make: Callable[[], tm.Tensor]) -> None:
    kept = tm.zeros(NBYTES, "uint8")
    with tm.Stream("main") as stream, held(stream) as gate:
        for end in (tm.Tensor.close, lambda tensor: None):
            tensor = make().fill_(7)
            tensor.fill_(8, stream=stream)
            kept.copy_(tensor, stream=stream)
            end(tensor)
            del tensor
        gate.open()
        stream.synchronize()
        assert kept.tolist() == [8] * NBYTES


def test_the_owner_is_told_in_its_turn_and_released_last() -> None:
    owner, tensor = bracketed()
    with tm.Stream("main") as stream, held(stream) as gate:
        tensor.fill_(3, stream=stream)
        tensor.copy_(tm.full(NBYTES, 4, "uint8"), stream=stream)
        tensor.close()
        assert owner.told() == []
        gate.open()
        stream.synchronize()
        tm.mr.HostMemoryResource().reap_pending()
        tm.empty(1)
    assert owner.told() == ["begin w", "end w", "begin w", "end w", "release"]


@needs_opengl
@pytest.mark.parametrize("nbytes", [4096, 9 * MIB])
@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("persistent", [True, False])
def test_copies_to_a_gpu_and_back_go_by_pinned_memory_and_do_not_wait(
    gpu: SimulatedGpu, persistent: bool, step: int, nbytes: int
) -> None:
    source, back = (_pbo(persistent, nbytes)[::step] for _ in range(2))
    pattern = tm.from_buffer(bytearray(range(256)) * (nbytes // 256), "uint8")
    source.copy_(pattern)
    with tm.Stream(gpu.drivers[0]) as stream, held(stream) as gate:
        far = source.to("gpu:0", stream=stream)
        back.storage.transfer = None
        tm.copy.transfer.transfer(back, far, stream)
        assert not far.ready and not back.ready and back.transfer_report.route == "staged"
        source.close()
        gate.open()
        stream.synchronize()
        assert bytes(memoryview(back.contiguous())) == bytes(memoryview(pattern))


@needs_opengl
@each_maker
def test_a_copy_to_a_gpu_without_a_stream_is_there_when_it_is_waited_for(
    gpu: SimulatedGpu, make: Callable[[], tm.Tensor]
) -> None:
    source = make().fill_(9)
    assert source.to("gpu:0").wait().to("main").tolist() == [9] * NBYTES


def test_what_fails_in_its_turn_is_raised_once_by_whoever_waits() -> None:
    owner, source = bracketed()
    target = tm.full(NBYTES, 1, "uint8")
    with tm.Stream("main") as stream:
        owner.refuse = tm.errors.MemoryUnavailable("camera", "the cable is out")
        report = target.copy_(source, stream=stream)
        with pytest.raises(tm.errors.MemoryUnavailable, match="cable"):
            target.wait()
        assert isinstance(report.error, tm.errors.MemoryUnavailable) and "failed" in repr(report)
        assert target.wait().tolist() == [1] * NBYTES
        assert owner.told() == []
        target.copy_(source, stream=stream)
        assert target.wait().tolist() == [0] * NBYTES


def test_an_end_that_fails_in_its_turn_is_raised_by_whoever_reads() -> None:
    owner, tensor = bracketed()
    with tm.Stream("main") as stream:
        owner.fail = OSError("the cable is out")
        tensor.fill_(3, stream=stream)
        stream.synchronize()
        assert tensor.ready
        with pytest.raises(OSError, match="cable"):
            tensor.tolist()
        assert tensor.tolist() == [3] * NBYTES


def test_a_failure_that_nobody_asks_for_is_told_when_the_tensor_goes() -> None:
    owner, source = bracketed()
    with tm.Stream("main") as stream, unraisable() as heard:
        target = tm.zeros(NBYTES, "uint8")
        owner.refuse = OSError("the cable is out")
        target.copy_(source, stream=stream)
        stream.synchronize()
        assert heard == []
        target.close()
        del target
    assert [str(error) for error in heard] == ["the cable is out"]


def test_a_failure_on_the_way_to_a_gpu_is_the_targets(gpu: SimulatedGpu) -> None:
    owner, source = bracketed()
    with tm.Stream(gpu.drivers[0]) as stream:
        owner.refuse = OSError("the cable is out")
        far = source.to("gpu:0", stream=stream)
        with pytest.raises(OSError, match="cable"):
            far.wait()
        owner.refuse = OSError("again")
    with pytest.raises(OSError, match="again"):
        source.to("gpu:0")


def test_a_stream_that_is_gone_begins_nothing() -> None:
    owner, tensor = bracketed()
    stream = tm.Stream("main")
    stream.close()
    for refused in (lambda: tensor.fill_(1, stream=stream), lambda: tensor.copy_(tm.zeros(24, "uint8"), stream=stream)):
        with pytest.raises(tm.errors.StreamMisuse):
            refused()
    assert owner.told() == [] and tensor.storage.export_count == 0
    tensor.close()
    assert owner.told() == ["release"]


@needs_opengl
@pytest.mark.parametrize("persistent", [True, False])
def test_a_buffer_of_a_context_of_somebody_else_is_begun_here_and_ends_with_the_next_call_here(
    persistent: bool,
) -> None:
    with foreign_context():
        context = GlContext.current()
        made = pbo.allocate(NBYTES, context=context, persistent=persistent)
        source = tm.Tensor(made, "uint8", (NBYTES,)).fill_(5)
        target = tm.zeros(NBYTES, "uint8")
        with tm.Stream("main") as stream, held(stream) as gate:
            target.copy_(source, stream=stream)
            if not persistent:
                with pytest.raises(tm.errors.PboMapped):
                    source.map("r")
            gate.open()
            stream.synchronize()
        assert target.tolist() == [5] * NBYTES
        assert source.tolist() == [5] * NBYTES  # one map at a time: the copy's is over
        source.close()
        context.close()


def test_work_of_a_gpu_is_waited_for_by_the_worker_of_a_host_stream_alone(gpu: SimulatedGpu) -> None:
    far = tm.full(NBYTES, 7, "uint8", space="gpu:0").wait()
    with tm.Stream(gpu.drivers[0]) as on_gpu, tm.Stream("main") as on_host, held(on_gpu) as gate:
        near = far.to("main", stream=on_gpu)
        target = tm.zeros(NBYTES, "uint8")
        target.copy_(near, stream=on_host)
        assert not target.ready
        gate.open()
        assert target.wait().tolist() == [7] * NBYTES


def test_a_fill_of_plain_memory_on_a_gpus_stream_needs_no_second_memory(gpu: SimulatedGpu) -> None:
    tensor = tm.zeros(MIB, "uint8")
    with tm.Stream(gpu.drivers[0]) as stream, held(stream) as gate:
        with tm.limit(1):
            tensor.fill_(7, stream=stream)
        assert not tensor.ready
        gate.open()
        assert bytes(memoryview(tensor.wait())) == b"\7" * MIB


def test_streams_of_many_threads_share_an_owner() -> None:
    _, tensor = bracketed(1 << 16)
    failed: list[BaseException] = []

    def work(value: int) -> None:
        try:
            target = tm.empty(1 << 16, "uint8")
            with tm.Stream("main") as stream:
                for _ in range(50):
                    tensor.fill_(value, stream=stream)
                    target.copy_(tensor, stream=stream)
        except BaseException as error:
            failed.append(error)

    threads: list[Any] = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
