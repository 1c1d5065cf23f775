"""Streams and events of the host: order, waiting, and every way to misuse them."""

import gc
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from weakref import ref

import pytest

from support.closing import Closing
from support.holdings import held, nothing_left_behind
from support.hooks import unraisable
from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Event, Stream, StreamLike, SupportsCudaStream, default_stream
from tensormem.testing.resources import Gate


@pytest.fixture
def stream() -> Iterator[Stream]:
    with Stream(host()) as made:
        yield made


# --- Order ---


def test_work_runs_in_the_order_it_was_given(stream: Stream) -> None:
    order: list[int] = []
    for number in range(100):
        stream.launch(order.append, number)
    stream.synchronize()
    assert order == list(range(100))


def test_work_runs_on_a_thread_of_the_stream(stream: Stream) -> None:
    threads: list[int] = []
    stream.launch(lambda: threads.append(threading.get_ident()))
    stream.launch(lambda: threads.append(threading.get_ident()))
    stream.synchronize()
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


def test_the_default_stream_runs_inline() -> None:
    default, seen = default_stream(), list[int]()
    default.launch(lambda: seen.append(threading.get_ident()))
    assert seen == [threading.get_ident()]
    default.synchronize()
    assert (default.done, default.is_default, default.closed, default.id) == (True, True, False, 0)


def test_a_stream_is_done_when_its_work_is(stream: Stream) -> None:
    gate = Gate()
    assert stream.done
    gate.hold(stream)
    assert not stream.done
    gate.open()
    stream.synchronize()
    assert stream.done


def test_streams_do_not_wait_for_each_other(stream: Stream) -> None:
    gate, order = Gate(), list[str]()
    with Stream(host()) as other:
        gate.hold(stream)
        stream.launch(order.append, "held")
        other.launch(order.append, "free")
        other.synchronize()
        assert order == ["free"]
        gate.open()
    stream.synchronize()
    assert order == ["free", "held"]


def test_an_event_orders_one_stream_behind_a_point_of_another(stream: Stream) -> None:
    gate, order = Gate(), list[str]()
    with Stream(host()) as other:
        gate.hold(stream)
        stream.launch(order.append, "before the point")
        event = stream.record()
        stream.launch(order.append, "after the point")
        other.wait(event)
        other.launch(order.append, "behind the point")
        assert (event.done, other.done) == (False, False)
        gate.open()
        other.synchronize()
        assert event.done
        assert order.index("before the point") < order.index("behind the point")


def test_an_event_waits_for_the_point_and_not_for_the_stream(stream: Stream) -> None:
    gate = Gate()
    event = stream.record()
    gate.hold(stream)
    event.synchronize()
    assert (event.done, stream.done) == (True, False)
    gate.open()


def test_an_event_recorded_again_marks_the_later_point(stream: Stream) -> None:
    gate = Gate()
    event = stream.record()
    event.synchronize()
    gate.hold(stream)
    event.record(stream)
    assert not event.done
    gate.open()
    event.synchronize()


def test_a_wait_is_for_the_point_of_that_moment(stream: Stream) -> None:
    early, late, order = Gate(), Gate(), list[str]()
    with Stream(host()) as other:
        early.hold(stream)
        event = stream.record()
        other.wait(event)
        late.hold(stream)
        stream.record(event)  # a later point, which `other` does not wait for
        other.launch(order.append, "early enough")
        early.open()
        other.synchronize()
        assert (order, event.done) == (["early enough"], False)
        late.open()


def test_an_event_that_was_never_recorded_is_done_and_nothing_waits_for_it(stream: Stream) -> None:
    with Event(host()) as event:
        assert event.done
        event.synchronize()
        stream.wait(event)
        stream.synchronize()


def test_the_default_stream_waits_before_it_returns(stream: Stream) -> None:
    gate, order = Gate(), list[str]()
    with Stream(host()) as opener:
        gate.hold(stream)
        stream.launch(order.append, "work")
        event = stream.record()
        opener.launch(gate.open)
        default_stream().wait(event)
        assert order == ["work"]


def test_seconds_since_measures_between_two_points(stream: Stream) -> None:
    gate = Gate()
    start = stream.record(timing=True)
    gate.hold(stream)
    middle, end = stream.record(timing=True), stream.record(timing=True)
    with pytest.raises(errors.InvalidArgument, match="not done"):
        end.seconds_since(start)
    gate.open()
    stream.synchronize()
    first, second = middle.seconds_since(start), end.seconds_since(middle)
    assert first >= 0 and second >= 0
    assert end.seconds_since(start) == pytest.approx(first + second)
    assert start.seconds_since(end) == -end.seconds_since(start)
    with pytest.raises(errors.InvalidArgument, match="never recorded"), Event(host(), timing=True) as unused:
        unused.seconds_since(start)
    with pytest.raises(errors.InvalidArgument, match="timing=True"):
        end.seconds_since(stream.record())


# --- Exceptions of the work ---


@pytest.mark.parametrize("error", [KeyError("lost"), KeyboardInterrupt(), SystemExit(1)], ids=repr)
def test_an_exception_of_the_work_reaches_the_hook_and_the_stream_goes_on(stream: Stream, error: BaseException) -> None:
    order: list[str] = []

    def fail() -> None:
        raise error

    with unraisable() as heard:
        for each in (stream, default_stream()):
            each.launch(fail)
            each.launch(order.append, "next")
            each.synchronize()
    assert (heard, order) == ([error, error], ["next", "next"])


def test_what_cannot_be_called_is_refused(stream: Stream) -> None:
    for nonsense in (None, 7, "work"):
        with pytest.raises(errors.InvalidArgument, match="something to call"):
            stream.launch(nonsense)  # type: ignore[arg-type]


def test_arguments_live_until_the_work_is_done_and_no_longer(stream: Stream) -> None:
    class Thing:
        pass

    gate, thing, seen = Gate(), Thing(), list[bool]()
    gone = ref(thing)
    gate.hold(stream)
    stream.launch(lambda each: seen.append(isinstance(each, Thing)), thing)
    del thing
    assert gone() is not None
    gate.open()
    stream.synchronize()
    gc.collect()
    assert (seen, gone()) == ([True], None)


# --- Misuse ---


def test_a_closed_stream_is_refused_everywhere() -> None:
    stream, heap = Stream(host()), mr.HostMemoryResource()
    event, block = stream.record(), heap.allocate(64)
    stream.close()
    stream.close()
    assert stream.closed
    for call in (
        stream.synchronize,
        stream.record,
        lambda: stream.done,
        lambda: stream.wait(event),
        lambda: stream.launch(print),
        lambda: event.record(stream),
        lambda: heap.allocate(64, stream),
        lambda: heap.deallocate(block, stream),
        lambda: heap.prepare_block_use(block, stream, "read"),
        lambda: heap.finish_block_use(block, stream, "read"),
        lambda: host().copy(block, block.ptr + 32, 32, stream),
        lambda: host().fill(block, 0, 1, (64, 1, 1), stream),
    ):
        with pytest.raises(errors.StreamMisuse) as caught:
            call()
        assert caught.value.stream == stream.id
    assert (event.done, block.state, heap.bytes_outstanding) == (True, "live", 64)
    assert "closed" in repr(stream)


def test_a_stream_that_is_being_closed_takes_no_work_and_ends_what_it_has() -> None:
    closing, order = Closing(), list[str]()
    closing.stream.launch(order.append, "given before")
    closing.start()
    with pytest.raises(errors.StreamMisuse):
        closing.stream.launch(order.append, "given after")
    assert order == []
    closing.finish()
    assert (order, closing.stream.closed) == (["given before"], True)


def test_the_default_stream_stays() -> None:
    default = default_stream()
    default.close()
    with default:
        pass
    assert not default.closed
    default.launch(lambda: None)


def test_a_closed_event_is_refused(stream: Stream) -> None:
    event = stream.record()
    event.close()
    event.close()
    for call in (event.synchronize, lambda: event.done, lambda: stream.wait(event), lambda: event.record(stream)):
        with pytest.raises(errors.StreamMisuse, match="closed"):
            call()
    assert "closed" in repr(event)


def test_an_event_outlives_its_stream() -> None:
    stream = Stream(host())
    event = stream.record()
    stream.close()
    event.synchronize()
    assert event.done


def test_work_cannot_wait_for_its_own_stream_or_close_it(stream: Stream) -> None:
    refused: list[type[BaseException]] = []

    def misuse() -> None:
        for call in (stream.synchronize, stream.close):
            try:
                call()
            except errors.StreamMisuse as refusal:
                refused.append(type(refusal))

    stream.launch(misuse)
    stream.synchronize()
    assert refused == [errors.StreamMisuse] * 2
    assert not stream.closed


def test_a_stream_may_be_dropped_by_its_own_work() -> None:
    with nothing_left_behind():
        ran = threading.Event()
        box = [Stream(host())]
        gate = Gate()
        gate.hold(box[0])

        def drop() -> None:
            box.clear()
            ran.set()

        box[0].launch(drop)
        gate.open()
        assert ran.wait(60)
        # The next stream that is made closes it from outside, as soon as its work is done.
        while held()["streams"] > 0:
            Stream(host()).close()


def test_a_dropped_stream_ends_its_work_first() -> None:
    order: list[int] = []
    stream = Stream(host())
    for number in range(50):
        stream.launch(order.append, number)
    del stream
    gc.collect()
    assert order == list(range(50))


def test_streams_and_events_leave_nothing_behind() -> None:
    with nothing_left_behind():
        streams = [Stream(host()) for _ in range(20)]
        events = [stream.record() for stream in streams]
        for left, right in pairwise(streams):
            right.wait(left.record())
            right.launch(lambda: None)
        assert held()["streams"] >= 20
        del streams, events, left, right


def test_ids_are_never_reused() -> None:
    seen = set()
    for _ in range(50):
        with Stream(host()) as stream:
            seen.add(stream.id)
    assert len(seen) == 50


def test_equal_streams_are_the_same_queue(stream: Stream) -> None:
    assert default_stream() == default_stream()
    assert hash(default_stream()) == hash(default_stream())
    assert stream != default_stream()
    assert stream != stream.id


@pytest.mark.parametrize("device", [1, -1, 7])
def test_a_device_that_does_not_exist_is_refused(device: int) -> None:
    for make in (Stream, Event, Stream.default):
        with pytest.raises(errors.InvalidArgument):
            make(host(), device)


def test_what_was_never_made_says_so() -> None:
    stream, event = Stream.__new__(Stream), Event.__new__(Event)
    for call in (stream.synchronize, stream.record, lambda: stream.done, lambda: stream.launch(print)):
        with pytest.raises(errors.StreamMisuse):
            call()
    for call in (event.synchronize, lambda: event.done):
        with pytest.raises(errors.StreamMisuse):
            call()
    stream.close()
    event.close()
    with pytest.raises(errors.StreamMisuse):
        mr.HostMemoryResource().allocate(64, stream)
    with pytest.raises(errors.InvalidSpace):
        Stream(None)  # type: ignore[arg-type]


def test_a_stream_is_made_once(stream: Stream) -> None:
    event = stream.record()
    for again in (stream, event):
        with pytest.raises(errors.InvalidArgument, match="exists already"):
            again.__init__(host())  # type: ignore[misc]


# --- Other people's streams ---


class Foreign:
    """An object that offers a stream the way CUDA libraries do."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> tuple[int, int]:
        offered: tuple[int, int] = self.answer
        return offered


def test_streams_of_the_host_are_no_cuda_streams(stream: Stream) -> None:
    assert not hasattr(stream, "__cuda_stream__")


def test_what_is_like_a_stream_can_be_asked_for() -> None:
    assert isinstance(Foreign((0, 0)), SupportsCudaStream)
    assert isinstance(Foreign((0, 0)), StreamLike)
    for nonsense in (None, 0, "stream"):
        assert not isinstance(nonsense, StreamLike)


def test_a_foreign_object_may_offer_a_stream(stream: Stream) -> None:
    heap = mr.HostMemoryResource()
    assert heap.allocate(64, Foreign((0, 0))).alloc_stream == 0
    assert heap.allocate(64, Foreign((0, stream.id))).alloc_stream == stream.id


@pytest.mark.parametrize(
    "answer", [(1, 0), (0, 12345), (0, -1), (0, 2**70), (0, 1.5), (0,), (0, 0, 0), None, 7, "stream"], ids=repr
)
def test_an_offer_that_is_not_understood_is_refused(answer: object) -> None:
    heap = mr.HostMemoryResource()
    with pytest.raises(errors.StreamMisuse):
        heap.allocate(64, Foreign(answer))
    assert heap.bytes_outstanding == 0


def test_an_offer_that_raises_is_the_callers() -> None:
    class Broken:
        def __cuda_stream__(self) -> tuple[int, int]:
            raise KeyError("lost")

    with pytest.raises(KeyError):
        mr.HostMemoryResource().allocate(64, Broken())


# --- Blocks and streams ---


def test_a_block_outlives_the_stream_it_was_made_on() -> None:
    for make in (mr.HostMemoryResource, lambda: mr.PoolMemoryResource(mr.HostMemoryResource())):
        heap = make()
        with Stream(host()) as stream:
            given_back, dropped = heap.allocate(64, stream), heap.allocate(64, stream)
        heap.deallocate(given_back)
        assert given_back.state == "freed"
        del dropped
        assert heap.bytes_outstanding == 0
