"""Frame rings between real processes: started in every way, killed at any moment on either side. What is left works."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

import tensormem as tm
from support.neighbours import received
from support.ring_peers import forked, read_frames, write_frames
from tensormem import errors

SPAWN = multiprocessing.get_context("spawn")
ROUNDS = 40


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture
def ring() -> Iterator[tm.FrameRing]:
    with tm.FrameRing(3, (64, 64), "uint8", mode="every", when_full="wait") as made:
        yield made


def whole(frame: tm.sharing.Frame) -> bool:
    return set(frame.numpy().ravel().tolist()) == {frame.number % 100}


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_ring_goes_to_processes_as_an_argument(method: str, ring: tm.FrameRing) -> None:
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    reader = context.Process(target=read_frames, args=(ring.as_readonly(), there))  # type: ignore[attr-defined]
    reader.start()
    assert received(here) == "ready"
    writer = context.Process(target=write_frames, args=(ring, 25))  # type: ignore[attr-defined]
    writer.start()
    seen, readonly, mode = received(here)
    assert seen == [(number, True) for number in range(1, 26)]
    assert (readonly, mode) == (True, "every")
    writer.join()
    reader.join()
    assert (writer.exitcode, reader.exitcode) == (0, 0)


def test_a_ring_is_inherited_by_its_descriptors(ring: tm.FrameRing) -> None:
    control, frames = ring.fds
    source = f"""
        import tensormem as tm
        with tm.FrameRing.attach({control}, {frames}, readonly=True) as ring:
            ring.attach_reader()
            print("ready", flush=True)
            print([frame.number for frame in ring])
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)], stdout=subprocess.PIPE, pass_fds=ring.fds, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    write_frames(ring, 5)
    out, _ = child.communicate()
    assert (out, child.returncode) == ("[1, 2, 3, 4, 5]\n", 0)


def test_a_forked_child_reads_on_its_own_and_keeps_nothing_of_its_parent(ring: tm.FrameRing) -> None:
    ring.attach_reader()
    with ring.write() as frame:
        frame.tensor.fill_(1)
    held = ring.read(timeout=0)
    told, tell = os.pipe()

    def body() -> None:
        held.close()
        with ring.read(timeout=0) as mine:
            os.write(tell, bytes([mine.number, len(ring.readers())]))
        try:
            ring.write(timeout=0)
        except errors.RingBusy:
            os.write(tell, b"!")

    child = forked(body)
    os.waitpid(child, 0)
    assert os.read(told, 10) == bytes([1, 2]) + b"!"
    os.close(told)
    os.close(tell)
    assert held.tensor[0, 0].item() == 1
    for number in (2, 3):
        with ring.write(timeout=0) as frame:
            frame.tensor.fill_(number)
    with pytest.raises(errors.TimedOut):  # what is held here is held still
        ring.write(timeout=0)
    held.close()
    ring.write(timeout=0).abandon()


def write_without_end(ring: tm.FrameRing, tell: int) -> None:
    dice = random.Random(os.getpid())
    ring.attach_writer()
    os.write(tell, b"x")
    while True:
        with ring.write() as frame:
            pixels, value = frame.numpy(), (ring.published + 1) % 100
            for row in dice.sample(range(64), 64):
                pixels[row] = value


def test_a_writer_killed_at_any_moment_leaves_whole_frames_and_a_ring_that_works(ring: tm.FrameRing) -> None:
    reader = ring.as_readonly()
    reader.attach_reader()
    expected = 1
    for round_ in range(ROUNDS):
        told, tell = os.pipe()
        child = forked(lambda tell=tell: write_without_end(ring, tell))  # type: ignore[misc]
        os.read(told, 1)
        for _ in range(round_ % 7):
            with reader.read(timeout=60) as frame:
                assert (frame.number, frame.dropped, whole(frame)) == (expected, 0, True)
            expected += 1
        kill(child)
        os.close(told)
        os.close(tell)
        # What it published is there; then the death is told, with all facts.
        with pytest.raises(errors.WriterGone) as raised:
            while True:
                with reader.read(timeout=60) as frame:
                    assert (frame.number, frame.dropped, whole(frame)) == (expected, 0, True)
                expected += 1
        assert (raised.value.pid, raised.value.number) == (child, expected - 1)
    ring.attach_writer()
    with ring.write(timeout=0) as written:
        written.tensor.fill_(expected % 100)
    with reader.read(timeout=0) as frame:
        assert (frame.number, whole(frame)) == (expected, True)
    reader.close()


def test_a_writer_killed_in_the_middle_of_a_frame_shows_nothing_of_it(ring: tm.FrameRing) -> None:
    reader = ring.as_readonly()
    told, tell = os.pipe()

    def body() -> None:
        with ring.write() as frame:
            frame.tensor.fill_(1)
        with ring.write() as frame:
            frame.numpy()[:32] = 99
            os.write(tell, b"x")
            signal.pause()

    child = forked(body)
    os.read(told, 1)
    kill(child)
    with reader.read(timeout=60) as seen:
        assert (seen.number, whole(seen)) == (1, True)
    with pytest.raises(errors.WriterGone):
        reader.read(timeout=60)
    with ring.write(timeout=0) as frame:
        frame.tensor.fill_(2)
    with reader.read(timeout=0) as seen:
        assert (seen.number, whole(seen)) == (2, True)
    os.close(told)
    os.close(tell)
    reader.close()


def read_without_end(ring: tm.FrameRing, mode: str, tell: int) -> None:
    mine = ring.as_readonly(mode)
    mine.attach_reader()
    os.write(tell, b"x")
    held = []
    while True:
        held.append(mine.read())
        assert whole(held[-1])
        del held[:-2]


@pytest.mark.parametrize("when_full", ["wait", "drop", "overwrite"])
def test_readers_killed_at_any_moment_hold_nobody_up(when_full: str) -> None:
    # Each reader holds up to three frames at once.
    with tm.FrameRing(7, (64, 64), "uint8", when_full=when_full) as ring:
        ring.attach_writer()
        for round_ in range(ROUNDS // 2):
            told, tell = os.pipe()
            children = [
                forked(lambda tell=tell, mode=mode: read_without_end(ring, mode, tell))  # type: ignore[misc]
                for mode in ("every", "latest")
            ]
            for _ in children:
                os.read(told, 1)
            for _ in range(3 + round_):
                with ring.write(timeout=60) as frame:
                    frame.tensor.fill_((ring.published + 1) % 100)
            for child in children:
                kill(child)
            os.close(told)
            os.close(tell)
        for _ in range(5):
            with ring.write(timeout=60) as frame:
                frame.tensor.fill_((ring.published + 1) % 100)
            assert frame.number > 0
        reader = ring.as_readonly()
        with reader.read(timeout=0) as seen:
            assert whole(seen)
        assert [each.pid for each in ring.readers()] == [os.getpid()]
        reader.close()


def test_a_reader_waits_for_the_next_writer_where_asked(ring: tm.FrameRing) -> None:
    reader = ring.as_readonly()
    reader.attach_reader()
    told, tell = os.pipe()

    def body(first: bool) -> None:
        ring.attach_writer()
        os.write(tell, b"x")
        if first:
            signal.pause()
        with ring.write() as frame:
            frame.tensor.fill_(1)
        signal.pause()

    child = forked(lambda: body(True))
    os.read(told, 1)
    kill(child)
    child = forked(lambda: body(False))
    with reader.read(timeout=60, wait_for_writer=True) as frame:
        assert (frame.number, whole(frame)) == (1, True)
    kill(child)
    os.close(told)
    os.close(tell)
    reader.close()


def test_a_signal_reaches_a_process_that_waits_for_a_frame() -> None:
    source = """
        import _thread, signal, threading
        import tensormem as tm
        ring = tm.FrameRing(2, 8)
        ring.attach_writer()
        threading.Timer(0.2, _thread.interrupt_main).start()
        try:
            ring.as_readonly().read()
        except KeyboardInterrupt:
            print("interrupted")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr
