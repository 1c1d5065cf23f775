"""A budget of several processes, with real ones: joined through fork, spawn and descriptors, killed at any moment while
they claim, asked to give back. What survives gets the share of the dead, all sums are exact, nothing is left behind.
"""

import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.holdings import no_new_descriptor_or_thread
from support.peers import Peer, claim_in_a_process
from support.python_processes import check_python
from tensormem import errors
from tensormem.pools import SharedBudget, TenantPool, VirtualMemoryPool

SPAWN = multiprocessing.get_context("spawn")
LIMIT = 1000


@pytest.fixture
def budget() -> Iterator[SharedBudget]:
    with SharedBudget.create(LIMIT, name="parent", patience=20) as made:
        yield made


HOLD = """
import sys
from tensormem.pools import SharedBudget
budget = SharedBudget.attach(FD, name="peer", guaranteed=100)
budget.claim(700)
print("ready", flush=True)
sys.stdin.readline()
budget.give_back(700)
budget.close()
print("gone", flush=True)
"""


def test_a_killed_process_returns_its_share_and_its_guarantee(budget: SharedBudget) -> None:
    peer = Peer(budget, HOLD)
    assert peer.hear() == "ready"
    with pytest.raises(errors.OutOfPhysicalMemory) as raised:
        budget.claim(301)
    assert raised.value.available == 300
    seen = {each.name: each for each in budget.participants()}
    assert (seen["peer"].used, seen["peer"].guaranteed, seen["peer"].pid) == (700, 100, peer.process.pid)
    peer.kill()
    budget.claim(LIMIT)
    assert [each.name for each in budget.participants()] == ["parent"]
    budget.give_back(LIMIT)


def test_a_process_that_leaves_is_gone_at_once(budget: SharedBudget) -> None:
    peer = Peer(budget, HOLD)
    assert peer.hear() == "ready"
    peer.say("go")
    assert peer.hear() == "gone"
    assert budget.used_by_all == 0
    assert len(budget.participants()) == 1
    peer.close()


def test_a_process_that_ends_without_a_word_is_gone_too(budget: SharedBudget) -> None:
    peer = Peer(budget, "from tensormem.pools import SharedBudget\nSharedBudget.attach(FD).claim(900)")
    peer.close()
    assert peer.process.returncode == 0
    budget.claim(LIMIT)
    budget.give_back(LIMIT)


CHURN = """
import random
from tensormem.errors import OutOfPhysicalMemory
from tensormem.pools import SharedBudget
print("ready", flush=True)
while True:
    with SharedBudget.attach(FD, name="churning", guaranteed=random.choice([0, 0, 150]), patience=0.001) as budget:
        held = []
        for _ in range(30):
            try:
                held.append(random.randrange(1, 500))
                budget.claim(held[-1])
            except OutOfPhysicalMemory:
                held.pop()
            if held and random.random() < 0.6:
                budget.give_back(held.pop())
        for nbytes in held:
            budget.give_back(nbytes)
"""


def test_processes_killed_at_random_moments_leave_exact_sums(budget: SharedBudget) -> None:
    dice = random.Random(11)
    peers = [Peer(budget, CHURN) for _ in range(3)]
    for peer in peers:
        assert peer.hear() == "ready"
    for _ in range(9):
        for _ in range(dice.randrange(1, 400)):
            assert budget.used_by_all <= LIMIT
        victim = peers.pop(0)
        os.kill(victim.process.pid, signal.SIGKILL)
        for _ in range(50):
            try:
                budget.claim(100)
            except errors.OutOfPhysicalMemory:
                continue
            assert budget.used_by_all <= LIMIT
            budget.give_back(100)
        victim.close()
        peers.append(Peer(budget, CHURN))
        assert peers[-1].hear() == "ready"
    for peer in peers:
        peer.kill()
    budget.claim(LIMIT)
    assert [(each.name, each.used) for each in budget.participants()] == [("parent", LIMIT)]
    budget.give_back(LIMIT)


LIES = """
import mmap, os, struct, sys
from tensormem.pools import SharedBudget
budget = SharedBudget.attach(FD, name="liar")
with mmap.mmap(FD, 4096 + 256 * 64) as table:
    slot = next(at for at in range(4096, 4096 + 256 * 64, 256) if table[at + 4:at + 8] == struct.pack("I", os.getpid()))
    table[slot + 8:slot + 16] = struct.pack("Q", 2**64 - 1)
    print("lied", flush=True)
    sys.stdin.readline()
    table[slot + 8:slot + 16] = struct.pack("Q", 0)
    print("and again", flush=True)
    sys.stdin.readline()
"""


def test_a_process_that_lies_about_its_part_keeps_memory_from_others_at_most_until_it_ends(
    budget: SharedBudget,
) -> None:
    budget.claim(400)
    peer = Peer(budget, LIES)
    assert peer.hear() == "lied"
    with pytest.raises(errors.OutOfPhysicalMemory) as raised:
        budget.claim(1)
    assert raised.value.available == 0 and budget.used == 400
    peer.say("take it back")
    assert peer.hear() == "and again"
    budget.claim(600)
    with pytest.raises(errors.OutOfPhysicalMemory):
        budget.claim(1)
    peer.kill()
    assert [(each.name, each.used) for each in budget.participants()] == [("parent", LIMIT)]
    budget.give_back(LIMIT)


EVICT = """
import sys
from tensormem.pools import SharedBudget
held = 800

def give(wanted):
    global held
    print("asked for", wanted, flush=True)
    held -= wanted
    budget.give_back(wanted)

budget = SharedBudget.attach(FD, name="evicting", on_pressure=give)
budget.claim(held)
print("ready", flush=True)
sys.stdin.readline()
"""


def test_another_process_is_asked_and_gives_back_what_is_missing(budget: SharedBudget) -> None:
    peer = Peer(budget, EVICT)
    assert peer.hear() == "ready"
    budget.claim(450)
    assert peer.hear() == "asked for 250"
    assert {each.name: (each.used, each.times_asked) for each in budget.participants()} == {
        "parent": (450, 0),
        "evicting": (550, 1),
    }
    budget.give_back(450)
    budget.limit = 400
    assert peer.hear() == "asked for 150"
    assert budget.used_by_all == 400
    peer.kill()


def test_a_callback_that_raises_over_there_is_reported_there_and_the_claim_goes_on(budget: SharedBudget) -> None:
    peer = Peer(
        budget,
        """
        import sys
        from tensormem.pools import SharedBudget
        def refuse(wanted):
            raise SystemExit("no")
        sys.unraisablehook = lambda args: print(type(args.exc_value).__name__, flush=True)
        budget = SharedBudget.attach(FD, on_pressure=refuse)
        budget.claim(800)
        print("ready", flush=True)
        sys.stdin.readline()
        """,
    )
    assert peer.hear() == "ready"
    with pytest.raises(errors.OutOfPhysicalMemory):
        budget.claim(500)
    assert peer.hear() == "SystemExit"
    assert budget.used == 0
    peer.kill()


def test_it_goes_to_a_spawned_process_as_an_argument(budget: SharedBudget) -> None:
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=claim_in_a_process, args=(budget, there), name="worker")
    process.start()
    assert here.recv() == ("worker", process.pid)
    assert {each.name: each.used for each in budget.participants()} == {"parent": 0, "worker": 300}
    here.send("go on")
    process.join()
    assert process.exitcode == 0
    assert budget.used_by_all == 0


def in_a_fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_no_part_in_it_until_it_attaches(budget: SharedBudget) -> None:
    budget.claim(400)

    def child() -> None:
        assert budget.closed
        for call in (lambda: budget.claim(1), budget.participants, budget.__enter__):
            with pytest.raises(errors.UseAfterRelease):
                call()
        budget.give_back(400)  # of the child's copy
        with SharedBudget.attach(budget.fd, name="child") as mine:
            mine.claim(600)
            assert mine.used_by_all == LIMIT
            mine.give_back(600)

    assert in_a_fork(child) == 0
    assert not budget.closed
    assert (budget.used, budget.used_by_all) == (400, 400)
    budget.give_back(400)


def test_a_child_that_lives_on_does_not_keep_the_share_of_its_killed_parent(budget: SharedBudget) -> None:
    peer = Peer(
        budget,
        """
        import os, sys
        from tensormem.pools import SharedBudget
        budget = SharedBudget.attach(FD, name="parent of an orphan")
        budget.claim(900)
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, b"x")
            sys.stdin.readline()  # until the test ends it
            os._exit(0)
        os.read(read, 1)
        print("ready", flush=True)
        sys.stdin.readline()
        """,
    )
    assert peer.hear() == "ready"
    os.kill(peer.process.pid, signal.SIGKILL)
    peer.process.wait()
    budget.claim(LIMIT)
    budget.give_back(LIMIT)
    peer.close()


POOL = """
import sys
from tensormem.pools import SharedBudget, TenantPool, VirtualMemoryPool
blocks = []

def give(wanted):
    while wanted > 0:
        block = blocks.pop()
        wanted -= block.size
        pool.deallocate(block)
    pool.trim()

budget = SharedBudget.attach(FD, name="serving", on_pressure=give)
pool = VirtualMemoryPool("1GiB", budget=budget)
blocks += [pool.allocate(size="4MiB") for _ in range(4)]
print(pool.physical_memory_usage, flush=True)
sys.stdin.readline()
print(pool.physical_memory_usage, len(blocks), flush=True)
sys.stdin.readline()
"""


def test_pools_of_two_processes_live_within_one_limit() -> None:
    with SharedBudget.create("16MiB", name="parent", priority=3, patience=60) as budget:
        peer = Peer(budget, POOL)
        assert peer.hear() == str(16 << 20)
        with VirtualMemoryPool("1GiB", budget=budget) as pool:
            pool.allocate(0, "8MiB")
            assert (pool.physical_memory_usage, budget.used_by_all) == (8 << 20, 16 << 20)
            peer.say("and you?")
            assert peer.hear() == f"{8 << 20} 2"
            peer.kill()
            pool.allocate("8MiB", "8MiB")
            assert budget.used == 16 << 20
        assert budget.used_by_all == 0


def test_nothing_is_left_behind() -> None:
    with no_new_descriptor_or_thread():
        with (
            SharedBudget.create(LIMIT, on_pressure=print) as one,
            SharedBudget.attach(one.fd, on_pressure=print) as other,
        ):
            other.claim(1)
            other.give_back(1)
        del one, other
    assert not [entry for entry in Path("/dev/shm").iterdir() if "tensormem" in entry.name]


def test_a_process_may_exit_while_it_takes_part_and_listens() -> None:
    check_python(
        """
        from tensormem.pools import SharedBudget
        budget = SharedBudget.create(1000, on_pressure=print)
        other = SharedBudget.attach(budget.fd, on_pressure=print)
        budget.claim(900)
        """
    )


TENANTS = """
import sys
from tensormem.pools import SharedBudget, TenantPool
budget = SharedBudget.attach(FD, name="serving", on_pressure=lambda wanted: models.relieve(wanted))
models = TenantPool(budget=budget)
blocks = []
def give(wanted):
    while wanted > 0 and blocks:
        wanted -= blocks[0].size
        models.deallocate("chat", blocks.pop(0))
chat = models.register("chat", "1GiB", guaranteed=1 * 2**21, on_pressure=give)
blocks += [chat.allocate("2MiB") for _ in range(6)]
print("ready", flush=True)
sys.stdin.readline()
print(len(blocks), flush=True)
models.close()
print(budget.used, flush=True)
"""


def test_tenants_of_two_processes_live_within_one_limit() -> None:
    page = 2 << 20
    with SharedBudget.create(8 * page, name="parent", patience=20) as budget:
        peer = Peer(budget, TENANTS)
        assert peer.hear() == "ready"
        with TenantPool(budget=budget) as models:
            code = models.register("code", "1GiB", priority=5)
            block = code.allocate(4 * page)
            assert budget.used_by_all <= 8 * page and block.size == 4 * page
            peer.say("go")
            assert 1 <= int(peer.hear()) <= 4
            assert peer.hear() == "0"
        peer.close()
        assert budget.used_by_all == 0
