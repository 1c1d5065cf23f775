"""Channels between real processes: given at the start, found by a path, and at the end of one that was killed."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tensormem as tm
from support.holdings import open_descriptors
from support.ring_peers import answer_tensors, forked
from tensormem import errors


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_channel_goes_to_a_process_as_an_argument(method: str) -> None:
    context = multiprocessing.get_context(method)
    here, there = tm.Channel.pair()
    process = context.Process(target=answer_tensors, args=(there,))  # type: ignore[attr-defined]
    process.start()
    there.close()
    sent = tm.full((2, 3), 5, "int32", memory="shm")
    here.send(sent.T)
    back = here.receive(timeout=100)
    assert back.tolist() == [[6, 6]] * 3
    assert sent.tolist() == [[6] * 3] * 2 and back.aliases(sent)
    here.close()
    process.join()
    assert process.exitcode == 0


def test_processes_find_each_other_by_a_path(tmp_path: Path) -> None:
    path = tmp_path / "camera"
    source = f"""
        import tensormem as tm
        with tm.Channel.connect({str(path)!r}) as channel:
            channel.send(tm.full(4, 7, "uint8", memory="shm"), readonly=True)
    """
    with tm.Channel.listen(path) as listener:
        child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(source)])
        with listener.accept(timeout=100) as server:
            seen = server.receive(timeout=100)
            assert (seen.tolist(), seen.readonly) == ([7] * 4, True)
            with pytest.raises(errors.ChannelClosed):
                server.receive(timeout=100)
        assert child.wait() == 0


def test_a_peer_that_is_killed_is_gone_and_what_it_sent_stays() -> None:
    here, there = tm.Channel.pair()

    def body() -> None:
        here.close()
        there.send(tm.full(4, 7, "uint8", memory="shm"))
        signal.pause()

    child = forked(body)
    there.close()
    seen = here.receive(timeout=100)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with pytest.raises(errors.ChannelClosed):
        here.receive(timeout=100)
    with pytest.raises(errors.ChannelClosed):
        here.send(seen)
    assert seen.tolist() == [7] * 4
    here.close()


def test_a_thousand_tensors_leave_no_descriptor_behind() -> None:
    here, there = tm.Channel.pair()
    before = open_descriptors()
    for number in range(1000):
        tensor = tm.empty(4096, "uint8", memory="shm")
        here.send(tensor, readonly=number % 2 == 0)
        with there.receive(timeout=100) as seen:
            assert seen.aliases(tensor)
        tensor.close()
    assert open_descriptors() == before
    here.close()
    there.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_not_let_in() -> None:
    told, tell = os.pipe()

    def body() -> None:
        os.setuid(65534)
        try:
            tm.Channel.connect("@tensormem-test-strangers")
        except errors.ChannelRefused as refused:
            os.write(tell, b"refused %d" % refused.uid)

    with tm.Channel.listen("@tensormem-test-strangers") as listener:
        child = forked(body)
        with pytest.raises(errors.ChannelRefused) as raised:
            listener.accept(timeout=100)
        os.waitpid(child, 0)
    assert raised.value.uid == 65534
    assert os.read(told, 100) == b"refused 0"
    os.close(told)
    os.close(tell)
