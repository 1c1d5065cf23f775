"""Frame rings within one process: what readers see, what the writer does when it is full, who may do what, and what is
refused."""

import gc
import os
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import tensormem as tm
from tensormem import errors
from tensormem.sharing import FrameReader, ReadMode, WhenFull


@pytest.fixture
def ring() -> Iterator[tm.FrameRing]:
    with tm.FrameRing(2, (4, 3), "int16") as made:
        yield made


def put(ring: tm.FrameRing, value: int) -> int:
    with ring.write(timeout=0) as frame:
        frame.tensor.fill_(value)
    return frame.number


def test_a_frame_is_seen_as_it_was_written(ring: tm.FrameRing) -> None:
    before = time.monotonic_ns()
    with ring.write() as frame:
        frame.numpy()[:] = np.arange(12).reshape(4, 3)
    with ring.read(timeout=5) as seen:
        assert (seen.number, seen.dropped) == (frame.number, 0) == (1, 0)
        assert before <= seen.timestamp <= time.monotonic_ns()
        assert seen.tensor.tolist() == np.arange(12).reshape(4, 3).tolist()
        assert (seen.tensor.readonly, seen.numpy().flags.writeable) == (True, False)
        assert str(seen.tensor.memory) == "shm"


def test_a_ring_says_what_it_is(ring: tm.FrameRing) -> None:
    assert (ring.frames, ring.shape, str(ring.dtype)) == (2, (4, 3), "int16")
    assert (ring.mode, ring.when_full) == (ReadMode.LATEST, WhenFull.OVERWRITE)
    assert (ring.published, ring.dropped, ring.writer_pid, ring.readers()) == (0, 0, 0, [])
    assert put(ring, 1) == 1
    assert (ring.published, ring.writer_pid) == (1, os.getpid())
    assert repr(ring) == "<FrameRing of 2 x (4, 3) int16: 1 published, 0 dropped>"


def test_frames_are_not_copied(ring: tm.FrameRing) -> None:
    with ring.write() as frame:
        written = frame.tensor
        written.fill_(6)
    assert written.closed
    other = ring.as_readonly()
    with ring.read(timeout=0) as here, other.read(timeout=0) as there:
        assert here.tensor.tolist() == there.tensor.tolist()
        assert here.tensor.aliases(there.tensor)
        array = np.asarray(here.tensor)
        assert array.ctypes.data == here.tensor.ptr
    other.close()


def test_latest_readers_get_the_newest_and_know_what_they_missed(ring: tm.FrameRing) -> None:
    ring.attach_reader()
    assert [put(ring, value) for value in range(5)] == [1, 2, 3, 4, 5]
    with ring.read(timeout=0) as frame:
        assert (frame.number, frame.dropped) == (5, 0)
    for value in range(3):
        put(ring, value)
    with ring.read(timeout=0) as frame:
        assert (frame.number, frame.dropped) == (8, 2)
    with pytest.raises(errors.TimedOut, match="no new frame"):
        ring.read(timeout=0)
    assert ring.readers() == [FrameReader(os.getpid(), ReadMode.LATEST, 2, 2)]


def test_every_frame_is_kept_by_a_writer_that_waits() -> None:
    with tm.FrameRing(3, 8, mode="every", when_full="wait") as ring:
        ring.attach_reader()
        assert [put(ring, value) for value in range(3)] == [1, 2, 3]
        with pytest.raises(errors.TimedOut, match="unread or in use"):
            ring.write(timeout=0)
        for number in range(1, 20):
            with ring.read(timeout=0) as frame:
                assert (frame.number, frame.dropped) == (number, 0)
                assert frame.tensor.tolist() == [(number - 1) % 3 if number <= 3 else 9] * 8
            assert put(ring, 9) == number + 3


def test_a_writer_that_drops_counts_what_nobody_will_see() -> None:
    with tm.FrameRing(2, 8, mode="every", when_full="drop") as ring:
        ring.attach_reader()
        assert [put(ring, value) for value in range(4)] == [1, 2, 0, 0]
        assert ring.dropped == 2
        with ring.read(timeout=0) as frame:
            assert frame.tensor.tolist() == [0] * 8


def test_a_held_frame_is_never_overwritten(ring: tm.FrameRing) -> None:
    put(ring, 7)
    with ring.read(timeout=0) as frame:
        for value in range(20):
            put(ring, value)
        assert set(frame.numpy().ravel().tolist()) == {7}


def test_an_array_that_outlives_its_frame_keeps_the_slot(ring: tm.FrameRing) -> None:
    put(ring, 7)
    with ring.read(timeout=0) as frame:
        array = frame.numpy()
    for value in range(20):
        put(ring, value)
    assert set(array.ravel().tolist()) == {7}
    assert frame.closed
    with pytest.raises(errors.UseAfterFree):
        frame.numpy()
    del array
    gc.collect()
    numbers = {put(ring, value) for value in range(3)}
    assert 0 not in numbers


def test_closing_a_frame_under_an_array_is_refused(ring: tm.FrameRing) -> None:
    put(ring, 7)
    frame = ring.read(timeout=0)
    array = frame.numpy()
    with pytest.raises(BufferError):
        frame.close()
    assert array[0, 0] == 7
    del array
    frame.close()
    frame.close()
    assert frame.closed


def test_frames_live_on_when_the_ring_is_closed() -> None:
    ring = tm.FrameRing(2, 8)
    put(ring, 5)
    frame = ring.read(timeout=0)
    ring.close()
    ring.close()
    assert frame.tensor.tolist() == [5] * 8
    frame.close()
    for action in (ring.read, ring.write, ring.attach_writer, ring.attach_reader, ring.as_readonly, ring.clone_fds):
        with pytest.raises(errors.UseAfterRelease):
            action()


def test_a_body_that_raises_publishes_nothing(ring: tm.FrameRing) -> None:
    with pytest.raises(ZeroDivisionError), ring.write() as frame:
        frame.tensor.fill_(1)
        raise ZeroDivisionError
    assert (frame.number, ring.published) == (0, 0)
    assert put(ring, 2) == 1


def test_a_frame_that_is_dropped_unfinished_is_abandoned(ring: tm.FrameRing) -> None:
    frame = ring.write()
    frame.tensor.fill_(3)
    del frame
    gc.collect()
    assert put(ring, 2) == 1


def test_a_frame_is_published_once_and_then_closed(ring: tm.FrameRing) -> None:
    frame = ring.write()
    assert frame.publish() == 1
    with pytest.raises(errors.UseAfterFree):
        frame.publish()
    with pytest.raises(errors.UseAfterFree):
        frame.tensor  # noqa: B018
    frame.abandon()
    assert ring.published == 1


def test_only_one_frame_is_written_at_a_time(ring: tm.FrameRing) -> None:
    with ring.write(), pytest.raises(errors.RingBusy, match="being written already"):
        ring.write()
    assert ring.published == 1


def test_a_timestamp_of_the_camera_reaches_the_readers(ring: tm.FrameRing) -> None:
    with ring.write() as frame:
        frame.timestamp = 12345
    with ring.read(timeout=0) as seen:
        assert seen.timestamp == 12345
    frame = ring.write()
    frame.timestamp = -1
    with pytest.raises(errors.InvalidArgument, match="nanoseconds"):
        frame.publish()
    frame.abandon()


def test_there_is_one_writer_until_it_closes_the_ring(ring: tm.FrameRing) -> None:
    put(ring, 1)
    control, frames = ring.clone_fds()
    second = tm.FrameRing.attach(control, frames)
    os.close(control)
    os.close(frames)
    with pytest.raises(errors.RingBusy) as raised:
        second.attach_writer()
    assert raised.value.pid == os.getpid()
    ring.close()
    assert put(second, 2) == 2
    second.close()


def test_readers_hear_that_no_frame_follows(ring: tm.FrameRing) -> None:
    reader = ring.as_readonly("every")
    put(ring, 1)
    reader.attach_reader()
    ring.close()
    assert [frame.number for frame in reader] == [1]
    with pytest.raises(errors.EndOfFrames) as raised:
        reader.read()
    assert raised.value.number == 1
    with pytest.raises(errors.TimedOut):
        reader.read(timeout=0, wait_for_writer=True)
    reader.close()


def test_a_writer_that_vanishes_without_closing_is_missed_after_its_last_frame() -> None:
    ring = tm.FrameRing(2, 8)
    reader = ring.as_readonly()
    put(ring, 1)
    del ring
    gc.collect()
    with reader.read(timeout=5) as frame:
        assert frame.number == 1
    with pytest.raises(errors.WriterGone) as raised:
        reader.read(timeout=5)
    assert (raised.value.pid, raised.value.number) == (os.getpid(), 1)
    reader.close()


def test_a_reading_end_cannot_write_and_the_kernel_agrees(ring: tm.FrameRing) -> None:
    reader = ring.as_readonly()
    assert reader.readonly
    with pytest.raises(errors.InvalidArgument, match="only read"):
        reader.write()
    _, frames = reader.fds
    with pytest.raises((errors.TensormemError, OSError)):
        tm.from_fd(frames, "uint8", 8)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(frames, b"x")
    reader.close()


def test_a_waiting_reader_is_woken_by_a_frame(ring: tm.FrameRing) -> None:
    numbers: list[int] = []
    reader = ring.as_readonly()
    thread = threading.Thread(target=lambda: numbers.extend(frame.number for frame in reader))
    thread.start()
    while put(ring, 1) < 50:
        pass
    ring.close()
    thread.join()
    assert numbers == sorted(set(numbers)) and numbers[-1] == 50
    reader.close()


def test_threads_share_one_reader_and_get_each_frame_once() -> None:
    with tm.FrameRing(2, 8, mode="every", when_full="wait") as ring:
        reader = ring.as_readonly()
        reader.attach_reader()
        seen: list[int] = []
        threads = [threading.Thread(target=lambda: seen.extend(frame.number for frame in reader)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for value in range(200):
            with ring.write(timeout=60) as frame:
                frame.tensor.fill_(value % 100)
        ring.close()
        for thread in threads:
            thread.join()
        assert sorted(seen) == list(range(1, 201))
        reader.close()


@pytest.mark.parametrize("frames", [0, -1, 1025, 2.5, "3", True, None])
def test_a_number_of_frames_that_cannot_be_is_refused(frames: object) -> None:
    with pytest.raises(errors.InvalidArgument, match="1 to 1,024"):
        tm.FrameRing(frames, 8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "dtype"), [((0,), "uint8"), ((1,) * 9, "uint8"), ((-1,), "uint8"), ((2**50,), "uint8"), ((4,), "potato")]
)
def test_frames_that_cannot_be_are_refused(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises((errors.InvalidArgument, errors.InvalidDType)):
        tm.FrameRing(2, shape, dtype)


def test_ways_that_do_not_exist_are_refused(ring: tm.FrameRing) -> None:
    with pytest.raises(errors.InvalidArgument, match="'latest', 'every'"):
        tm.FrameRing(2, 8, mode="newest")
    with pytest.raises(errors.InvalidArgument, match="'wait', 'drop', 'overwrite'"):
        tm.FrameRing(2, 8, when_full="panic")
    with pytest.raises(errors.InvalidArgument, match="'latest', 'every'"):
        ring.as_readonly("newest")
    for kind in ("mem", "pbo"):
        with pytest.raises(errors.MemoryUnavailable, match="shm or dma"):
            tm.FrameRing(2, 8, memory=kind)
    with pytest.raises(errors.InvalidMemoryType):
        tm.FrameRing(2, 8, memory="potato")


@pytest.mark.parametrize("timeout", [-1, "1", True, float("nan"), float("inf")])
def test_a_timeout_that_cannot_be_is_refused(ring: tm.FrameRing, timeout: float) -> None:
    for action in (ring.read, ring.write):
        with pytest.raises(errors.InvalidArgument, match="timeout"):
            action(timeout)


def test_a_frames_file_that_does_not_fit_is_refused_and_leaves_nothing(ring: tm.FrameRing) -> None:
    small = tm.empty(64, "uint8", memory="shm")
    control, _ = ring.fds
    fd = small.clone_fd()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(errors.TensormemError):
        tm.FrameRing.attach(control, fd)
    with pytest.raises(errors.InvalidArgument):
        tm.FrameRing.attach(fd, fd)
    with open("/dev/null", "rb") as null, pytest.raises(errors.InvalidArgument):
        tm.FrameRing.attach(null.fileno(), fd)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(fd)


def test_rings_leave_no_descriptor_behind() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        with tm.FrameRing(2, 8) as ring:
            put(ring, 1)
            reader = ring.as_readonly()
            with reader.read(timeout=0):
                pass
            reader.close()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_ring_is_no_plain_pickle(ring: tm.FrameRing) -> None:
    import pickle

    with pytest.raises(TypeError, match="multiprocessing"):
        pickle.dumps(ring)


def test_a_frame_that_was_not_begun_is_not_published() -> None:
    core = tm._core
    writer = core.RingWriter(core.RingFile.create(2, 4, "uint8", "drop", "latest"))
    with pytest.raises(errors.InvalidArgument, match="begin"):
        writer.publish(1)
    writer.begin(0)
    assert writer.publish(1) == 1
    with pytest.raises(errors.InvalidArgument, match="begin"):
        writer.publish(1)


def test_a_frame_that_cannot_be_made_ends_in_silence() -> None:
    from support.hooks import unraisable
    from tensormem.sharing import WritableFrame

    with unraisable() as heard:
        for _ in range(2):
            with pytest.raises((AttributeError, TypeError)):
                WritableFrame("x", "y", "z", 0)  # type: ignore[arg-type]
        gc.collect()
    assert heard == []
