"""Every system call behind frame rings and channels fails in turn: it is said, and nothing leaks."""

import errno
from collections.abc import Callable

import pytest

import tensormem as tm
from support.holdings import nothing_left_behind
from tensormem import errors
from tensormem.testing.faults import count_system_calls, each_system_call_fails


def write_and_read() -> None:
    with tm.FrameRing(2, 1000) as ring, ring.as_readonly("every") as reader:
        reader.attach_reader()
        with ring.write(timeout=0) as frame:
            frame.tensor.fill_(1)
        with reader.read(timeout=0) as seen:
            assert seen.tensor[0].item() == 1


def send_and_receive() -> None:
    here, there = tm.Channel.pair()
    with here, there, tm.zeros(1000, memory="shm") as tensor:
        here.send(tensor, readonly=True)
        there.receive(timeout=0).close()
        with tm.FrameRing(2, 1000) as ring:
            here.send(ring)
            there.receive_ring(timeout=0).close()


@pytest.mark.parametrize("scenario", [write_and_read, send_and_receive])
@pytest.mark.parametrize("error", [errno.ENOMEM, errno.EMFILE, errno.EPERM])
def test_whichever_system_call_fails_it_is_said_and_nothing_leaks(scenario: Callable[[], None], error: int) -> None:
    scenario()
    assert count_system_calls(scenario) >= 10
    with nothing_left_behind():
        for raised in each_system_call_fails(scenario, error=error):
            # Some have another way out: what cannot be unmapped now is unmapped later, a life that cannot be looked at
            # is taken for one.
            assert raised is None or isinstance(raised, errors.TensormemError)
            assert not isinstance(raised, errors.RingBusy)
