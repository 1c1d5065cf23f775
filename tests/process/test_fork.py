"""A fork while streams run and other threads allocate: the child neither hangs nor crashes, and has fresh streams."""

import subprocess
import sys

import pytest

from support.python_processes import check_python

# `in_a_child` forks; the child has to end well, and a hang of it ends as a signal.
FORK = """
import ctypes, os, signal, sys, threading, traceback
import tensormem as tm
from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.testing.resources import Gate

def in_a_child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, f"the child ended with {code}"

def refuses(call):
    try:
        call()
    except errors.StreamMisuse:
        return True
    return False

def churn(resource, stream=None):
    blocks = [resource.allocate(nbytes, stream) for nbytes in (1, 1000, 100_000, 3_000_000)]
    for block in blocks:
        ctypes.memset(block.ptr, 1, min(block.nbytes, 10_000))
        resource.deallocate(block, stream)
"""


def check_forking(source: str) -> None:
    # Newer Pythons warn of every fork of a process with threads, which is just what these do.
    check_python(FORK + source, "-X", "dev", "-W", "ignore::DeprecationWarning")


def test_the_child_gets_fresh_streams_and_a_clear_error_for_the_old_ones() -> None:
    check_forking(
        """
gate, stream, done = Gate(), tm.Stream(host()), []
gate.hold(stream)
pending = stream.record()

def child():
    assert stream.closed
    for call in (stream.synchronize, lambda: stream.done, lambda: stream.launch(print), lambda: pending.done,
                 pending.synchronize, lambda: tm.Stream.default(host()).wait(pending)):
        assert refuses(call)
    with tm.Stream(host()) as fresh:
        fresh.launch(done.append, 1)
        fresh.synchronize()
        assert fresh.record().done
    assert done == [1]
    tm.Stream.default(host()).launch(done.append, 2)
    assert done == [1, 2]

in_a_child(child)
gate.open()
stream.synchronize()
assert done == [] and pending.done and not stream.closed
stream.close()
"""
    )


@pytest.mark.parametrize(
    "make",
    [
        "mr.HostMemoryResource()",
        "mr.PinnedMemoryResource()",
        "mr.PoolMemoryResource(mr.HostMemoryResource())",
        "mr.ArenaMemoryResource(mr.HostMemoryResource())",
        "mr.BinningMemoryResource(mr.HostMemoryResource(), 8, 12)",
        "mr.LimitingResourceAdaptor(mr.PoolMemoryResource(mr.HostMemoryResource(), '8MiB', '8MiB'), '8MiB')",
    ],
)
def test_resources_work_in_the_child_whatever_streams_of_the_parent_have_of_them(make: str) -> None:
    check_forking(
        f"""
resource = {make}
gate, stream = Gate(), tm.Stream(host())
gate.hold(stream)
live = resource.allocate(5000)
ctypes.memset(live.ptr, 7, 5000)
on_a_stream, waiting = resource.allocate(4000, stream), resource.allocate(3000, stream)
resource.deallocate(waiting, stream)

def child():
    assert ctypes.string_at(live.ptr, 5000) == bytes([7]) * 5000
    churn(resource)
    with tm.Stream(host()) as fresh:
        churn(resource, fresh)
    resource.deallocate(live)
    resource.deallocate(on_a_stream)
    assert refuses(lambda: resource.allocate(1, stream))

in_a_child(child)
gate.open()
stream.close()
assert ctypes.string_at(live.ptr, 5000) == bytes([7]) * 5000
resource.deallocate(live)
resource.deallocate(on_a_stream)
resource.reap_pending()
assert resource.bytes_outstanding == 0
"""
    )


def test_forks_while_threads_allocate_and_streams_work_do_not_hang_the_child() -> None:
    check_forking(
        """
resources = (
    mr.PoolMemoryResource(mr.HostMemoryResource()),
    mr.ArenaMemoryResource(mr.HostMemoryResource()),
    mr.StatisticsResourceAdaptor(mr.LimitingResourceAdaptor(mr.HostMemoryResource(), "1GiB")),
)
stop = threading.Event()

def work():
    with tm.Stream(host()) as stream:
        while not stop.is_set():
            for resource in resources:
                churn(resource)
                block = resource.allocate(200_000, stream)
                host().fill(block, 1, 1, (200_000, 1, 1), stream)
                resource.finish_block_use(block, stream, "write")
                resource.deallocate(block)
                resource.reap_pending()

def child():
    with tm.Stream(host()) as fresh:
        for resource in resources:
            churn(resource)
            churn(resource, fresh)

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
try:
    for _ in range(20):
        in_a_child(child)
finally:
    stop.set()
for thread in threads:
    thread.join()
for resource in resources:
    resource.reap_pending()
    assert resource.bytes_outstanding == 0
"""
    )


def test_work_on_a_stream_may_fork() -> None:
    check_forking(
        """
seen = []

def fork():
    in_a_child(lambda: churn(mr.HostMemoryResource()))
    seen.append("forked")

with tm.Stream(host()) as stream:
    stream.launch(fork)
    stream.launch(seen.append, "went on")
    stream.synchronize()
assert seen == ["forked", "went on"]
"""
    )


def test_the_child_cannot_touch_virtual_memory_of_the_parent() -> None:
    check_forking(
        """
import faulthandler
page = host().granularity()[0]
address, physical = host().reserve(page), host().physical_create(page)
host().map(address, page, physical)
host().set_access(address, page, "read_write")
ctypes.memset(address, 7, page)

pid = os.fork()
if pid == 0:
    faulthandler.disable()
    ctypes.memset(address, 1, page)  # faults
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV

def child():
    other, mine = host().reserve(page), host().physical_create(page)
    host().map(other, page, mine)
    host().set_access(other, page, "read_write")
    ctypes.memset(other, 1, page)
    host().unmap(address, page)
    host().release(address, page)

in_a_child(child)
assert ctypes.string_at(address, page) == bytes([7]) * page
"""
    )


def test_multiprocessing_by_fork_works() -> None:
    check_forking(
        """
import multiprocessing

pool = mr.PoolMemoryResource(mr.HostMemoryResource())

def work(nbytes):
    pool.deallocate(pool.allocate(nbytes))
    done = []
    with tm.Stream(host()) as stream:
        stream.launch(done.append, nbytes)
        stream.synchronize()
    return done[0]

with tm.Stream(host()) as stream:
    stream.launch(work, 10)
    with multiprocessing.get_context("fork").Pool(2) as workers:
        assert sum(workers.map(work, range(1, 101))) == 5050
"""
    )


LAZY = """
import os, signal, sys, threading, time
import tensormem as tm
names = ["empty", "mr", "pools", "sharing", "Image", "trace", "interop", "vmm", "gl", "TenantPool"]
use = lambda: [getattr(tm, name) for name in names]
thread = threading.Thread(target=use)
thread.start()
time.sleep(float(sys.argv[1]))
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    use()
    assert tm.zeros(3).tolist() == [0, 0, 0]
    os._exit(0)
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0)
"""


@pytest.mark.parametrize("turn", range(20))
def test_a_fork_amid_the_first_use_of_lazily_loaded_names_leaves_a_child_that_works(turn: int) -> None:
    """Ten moments each: two hundred in all, spread over the time that the names take to load."""
    children = [
        subprocess.Popen([sys.executable, "-W", "ignore", "-c", LAZY, str(0.0006 * (10 * turn + each))])
        for each in range(10)
    ]
    assert [child.wait() for child in children] == [0] * 10
