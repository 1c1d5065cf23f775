"""Virtual memory seen by the kernel: denied accesses fault, resident memory follows the mappings, forks are defined."""

import signal

import pytest

from support.python_processes import check_python, run_python

# `dies_touching(work)` forks; gives the signal that ended the child, or None if nothing did.
START = """
import ctypes, gc, os, signal, sys, threading, traceback
import tensormem as tm
from tensormem import errors
from tensormem.vmm import GrowableBuffer, VirtualMemoryManager
PAGE, HUGE, MIB = 4096, 2 << 20, 1 << 20

def field(name, file="/proc/self/smaps_rollup"):
    return next(1024 * int(line.split()[1]) for line in open(file) if line.startswith(name + ":"))

def memory_file_bytes():
    files = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum(os.stat(file).st_blocks * 512 for file in files if os.path.islink(file)
               and os.readlink(file).startswith("/memfd:"))

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

def refused(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError("not refused")
"""

# What each source does last has to fault; everything before has to work.
FAULTS = {
    "reading mapped memory without access": "vmm.map(va, pages); ctypes.string_at(va.base, 1)",
    "reading a range set to none": 'go(); vmm.set_access(va, None, "none", size=HUGE); ctypes.string_at(va.base, 1)',
    "writing a range set to read": (
        'go(); vmm.set_access(va, None, "read", size=HUGE); look(); ctypes.memset(va.base, 1, 1)'
    ),
    "writing a page set to read": 'go(); vmm.set_access(va, None, "read", offset=PAGE, size=PAGE); '
    "ctypes.memset(va.base, 1, PAGE); ctypes.memset(va.base + PAGE, 1, 1)",
    "touching after unmap": "go(); vmm.unmap(va, 0, HUGE); ctypes.string_at(va.base, 1)",
    "touching a page after a partial unmap": (
        "go(); vmm.unmap(va, PAGE, PAGE); look(); ctypes.string_at(va.base + PAGE, 1)"
    ),
    "touching where a mapping moved away": "m = go(); vmm.move(m, HUGE); ctypes.string_at(va.base, 1)",
    "touching after the range was closed": "go(); va.close(); ctypes.string_at(va.base, 1)",
    "touching after the manager was closed": "go(); vmm.close(); ctypes.string_at(va.base, 1)",
    "touching after everything was dropped": (
        "go(); at = va.base; del va, pages, vmm; gc.collect(); ctypes.string_at(at, 1)"
    ),
    "touching reserved addresses": "ctypes.string_at(va.base, 1)",
    "touching behind a growable buffer": "b = GrowableBuffer('8MiB', 1); ctypes.string_at(b.address + b.capacity, 1)",
    "touching what a buffer gave back": (
        "b = GrowableBuffer('8MiB', '4MiB'); b.resize(1); ctypes.string_at(b.address + HUGE, 1)"
    ),
}
SETTING = """
import faulthandler
faulthandler.disable()
vmm = VirtualMemoryManager()
va, pages = vmm.reserve(4 * HUGE), vmm.alloc_physical(HUGE)
def look():
    assert ctypes.string_at(va.base, 5) == b"hello"
def go():
    mapping = vmm.map(va, pages, access="read_write")
    ctypes.memmove(va.base, b"hello", 5)
    look()
    return mapping
"""


@pytest.mark.parametrize("what", FAULTS)
def test_a_denied_access_really_faults(what: str) -> None:
    *steps, last = FAULTS[what].split("; ")
    ended = run_python("\n".join([START, SETTING, *steps, "print('so far', flush=True)", last, "print('no fault')"]))
    assert (ended.returncode, ended.stdout) == (-signal.SIGSEGV, "so far\n"), ended.stderr


def test_the_same_accesses_with_permission_do_not_fault() -> None:
    assert check_python(START + SETTING + "go(); ctypes.memset(va.base, 1, HUGE); print('fine')") == "fine\n"


def test_resident_memory_follows_the_mappings_exactly() -> None:
    check_python(
        START
        + """
vmm = VirtualMemoryManager()
va = vmm.reserve("128GiB")
pages = [vmm.alloc_physical(HUGE, near=va.base + i * HUGE) for i in range(16)]
assert memory_file_bytes() == 16 * HUGE
start = field("Rss")
noise = 2 * MIB
for count in (1, 4, 16):
    mapping = vmm.map(va, pages[:count], access="read_write")
    ctypes.memset(va.base, 7, count * HUGE)
    assert abs(field("Rss") - start - count * HUGE) < noise, count
    vmm.unmap(va, 0, count * HUGE)
    assert abs(field("Rss") - start) < noise, count
    assert memory_file_bytes() == 16 * HUGE  # the pages are there, mapped or not
for left in reversed(range(16)):
    vmm.free_physical(pages.pop())
    assert memory_file_bytes() == left * HUGE
"""
    )


def test_addresses_cost_no_memory_and_cycles_leak_nothing() -> None:
    check_python(
        START
        + """
vmm = VirtualMemoryManager()
start, areas = field("Rss"), sum(1 for _ in open("/proc/self/maps"))
va = vmm.reserve("128GiB")
assert field("Rss") - start < MIB
tables = field("VmPTE", "/proc/self/status")
vmm.release(va)
for _ in range(3):
    for _ in range(20_000):
        vmm.release(vmm.reserve(HUGE))
assert field("Rss") - start < MIB
assert field("VmPTE", "/proc/self/status") <= tables + MIB
assert sum(1 for _ in open("/proc/self/maps")) <= areas + 2
assert vmm.memory_info()["ranges"] == 0
"""
    )


def test_neighbours_placed_near_their_addresses_are_one_memory_area() -> None:
    check_python(
        START
        + """
GrowableBuffer("1MiB").close()  # what it imports when it is first used has areas too
vmm = VirtualMemoryManager()
va = vmm.reserve(256 * PAGE)
areas = lambda: sum(1 for _ in open("/proc/self/maps"))
before = areas()
pages = [vmm.alloc_physical(PAGE, huge_pages=False, near=va.base + i * PAGE) for i in range(256)]
vmm.map(va, pages, access="read_write")
assert areas() <= before + 1, (before, areas())
with GrowableBuffer("1GiB", "64MiB") as buffer:
    assert areas() <= before + 4
"""
    )


def test_too_many_memory_areas_are_refused_before_the_kernel_does_and_all_can_be_taken_down() -> None:
    check_python(
        START
        + """
vmm = VirtualMemoryManager()
limit = int(open("/proc/sys/vm/max_map_count").read())
va, page = vmm.reserve(4 * limit * PAGE), vmm.alloc_physical(PAGE, huge_pages=False)
count = 0
try:
    while True:
        vmm.map(va, page, 2 * count * PAGE)
        count += 1
except errors.TooManyMappings as refusal:
    assert refusal.limit == limit and refusal.current <= limit
before = vmm.memory_info()["mappings"]
refused(errors.TooManyMappings, lambda: vmm.map(va, [page] * 3, (2 * count + 2) * PAGE, access="read"))
assert vmm.memory_info()["mappings"] == before == count == page.mapping_count
threading.Thread(target=lambda: None).start()  # the rest of the process has room left
for i in range(8):  # what the refusal imported and the thread took a few areas of the room that was left
    vmm.unmap(va, 2 * i * PAGE, PAGE)
vmm.map(va, page, 0)
vmm.close()
"""
    )


def test_a_forked_child_gets_clear_errors_harms_nothing_and_can_start_afresh() -> None:
    check_python(
        START
        + """
vmm = VirtualMemoryManager()
va, pages, shared = vmm.reserve(8 * PAGE), vmm.alloc_physical(PAGE), vmm.alloc_physical(PAGE, exportable=True)
mapping = vmm.map(va, pages, access="read_write")
ctypes.memmove(va.base, b"parent", 6)
buffer = GrowableBuffer("1MiB", 100)
view = memoryview(buffer)
view[:4] = b"here"
fd = vmm.export_handle(shared)

def child():
    refused(errors.InvalidArgument, lambda: vmm.map(va, pages, PAGE))
    refused(errors.InvalidArgument, lambda: vmm.set_access(va, None, "read", size=PAGE))
    refused(errors.InvalidArgument, lambda: vmm.export_handle(shared))
    refused(errors.InvalidArgument, lambda: vmm.move(mapping, 4 * PAGE))
    for call in (lambda: buffer.resize(1), lambda: buffer.resize(10**6), lambda: memoryview(buffer)):
        refused(errors.InvalidArgument, call)
    assert mapping.is_live and len(vmm.mappings(va)) == 1
    with vmm.reserve(PAGE) as fresh_va, vmm.import_handle(fd) as imported:
        m = vmm.map(fresh_va, imported, access="read_write")
        ctypes.memmove(m.address, b"child", 5)
    mapping.unmap()
    vmm.free_physical(pages)
    vmm.release(va)
    buffer.close()
    vmm.close()
    with VirtualMemoryManager() as new, new.reserve(PAGE) as again:
        new.map(again, new.alloc_physical(PAGE), access="read_write")
        ctypes.memset(again.base, 1, PAGE)
    with GrowableBuffer("1MiB", 100) as another:
        memoryview(another)[:1] = b"x"

in_a_child(child)
assert ctypes.string_at(va.base, 6) == b"parent" and bytes(view[:4]) == b"here"
buffer.resize(5000)
with vmm.reserve(PAGE) as mine:
    assert ctypes.string_at(vmm.map(mine, shared, access="read").address, 5) == b"child"
view.release()
os.close(fd)
vmm.close()
"""
    )


def test_touching_the_parents_memory_in_a_child_faults_in_the_child_alone() -> None:
    check_python(
        START
        + """
import faulthandler
faulthandler.disable()
vmm = VirtualMemoryManager()
va = vmm.reserve(PAGE)
vmm.map(va, vmm.alloc_physical(PAGE), access="read_write")
pid = os.fork()
if pid == 0:
    ctypes.string_at(va.base, 1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV
ctypes.memset(va.base, 1, PAGE)
"""
    )


def test_forks_in_the_middle_of_other_threads_calls_never_hang() -> None:
    check_python(
        START
        + """
vmm, stop = VirtualMemoryManager(), threading.Event()
def churn(place):
    va, other = vmm.reserve(16 * PAGE), vmm.reserve(16 * PAGE)
    page = vmm.alloc_physical(PAGE, huge_pages=False)
    while not stop.is_set():
        m = vmm.map(va, page, access="read")
        vmm.move(m, 0, to=other).unmap()
        vmm.reserve(PAGE)
def child():
    with vmm.reserve(PAGE) as va:
        vmm.map(va, vmm.alloc_physical(PAGE), access="read_write")
        ctypes.memset(va.base, 1, PAGE)
    vmm.close()
threads = [threading.Thread(target=churn, args=(i,)) for i in range(4)]
for t in threads: t.start()
try:
    for _ in range(25):
        in_a_child(child)
finally:
    stop.set()
    for t in threads: t.join()
""",
        "-W",
        "ignore::DeprecationWarning",
    )
