"""A fork while streams run and threads allocate: the child neither hangs nor crashes, and the parent goes on."""

import subprocess
import sys

import pytest

FORK_WHILE_BUSY = """
import os, signal, threading
import tensormem as tm

host = tm.drivers.host()
pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
stack = tm.mr.StatisticsResourceAdaptor(tm.mr.LimitingResourceAdaptor(pool, "1GiB"))
old = tm.Stream(host)
stop = threading.Event()

def churn():
    while not stop.is_set():
        stack.deallocate(stack.allocate(100_000))

threads = [threading.Thread(target=churn) for _ in range(4)]
for thread in threads:
    thread.start()
old.launch(stop.wait)

for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a hang ends as a signal, not as a time-out of the whole test
        try:
            for _ in range(100):
                stack.deallocate(stack.allocate(5_000))
            try:
                old.synchronize()
                os._exit(3)
            except tm.errors.StreamMisuse:
                pass
            done = []
            with tm.Stream(host) as fresh:
                fresh.launch(done.append, 1)
                fresh.synchronize()
            os._exit(0 if done == [1] and old.closed else 4)
        except BaseException:
            os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

stop.set()
for thread in threads:
    thread.join()
old.close()
print(stack.allocation_counts.current_count)
"""

LEAVE_EVERYTHING_OPEN = """
import threading
import tensormem as tm

host = tm.drivers.host()
stream = tm.Stream(host)
ran = []
stream.launch(ran.append, 1)
block = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource()).allocate(1000, stream)
kept = {}
callback = tm.mr.CallbackMemoryResource(lambda n, s: 4096 * (n > 0), lambda p, n, s: kept.clear(), alignment=4096)
held = callback.allocate(64)
print("leaving")
"""


def run(code: str) -> str:
    command = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_a_child_forked_while_streams_run_and_threads_allocate_works_with_fresh_streams() -> None:
    assert run(FORK_WHILE_BUSY) == "0"


@pytest.mark.parametrize("attempt", range(3))
def test_a_process_that_leaves_streams_blocks_and_callbacks_open_ends_cleanly(attempt: int) -> None:
    assert run(LEAVE_EVERYTHING_OPEN) == "leaving"
