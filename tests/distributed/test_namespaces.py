"""One node seen from containers: other process numbers, another /tmp, another user namespace, another user. They share
one budget by being handed its descriptor, or are told why not.
"""

import os
import time
from contextlib import ExitStack

import pytest

from support.containers import contained, enter_user_namespace, needs_namespaces
from support.other_users import other_user
from support.waiting import eventually
from tensormem import errors
from tensormem.distributed import Declaration, Node, WorkerStack
from tensormem.distributed.clocks import ClockReading, estimate_offset
from tensormem.distributed.worker_discovery import beacons

pytestmark = needs_namespaces

MIB = 1 << 20
NODE = Node.here("test", f"containers-of-{os.getpid()}")
DECLARED = Declaration(budget="300MiB", keep=0, patience=20)
WORKER = f"""
import os, sys
from tensormem import errors
from tensormem.distributed import Declaration, Node, WorkerStack
for line in sys.stdin:
    try:
        stack = WorkerStack(Declaration.from_json({DECLARED.to_json()!r}), Node.here("test", {NODE.id!r}), "contained")
        block = stack.resource.allocate(int(line))
        print("has it as", os.getpid(), flush=True)
    except errors.TensormemError as error:
        print(type(error).__name__, error, flush=True)
"""
KINDS = {
    "process numbers of their own": (("--pid",), False),
    "a /tmp of their own": (("--pid", "--mount"), True),
    "users of their own": (("--pid", "--user", "--map-root-user"), False),
    "all of that": (("--pid", "--mount", "--user", "--map-root-user"), True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_containers_of_a_node_share_one_budget_even_with_equal_process_numbers(kind: str) -> None:
    namespaces, own_tmp = KINDS[kind]
    with ExitStack() as containers:
        first, second = (containers.enter_context(contained(WORKER, *namespaces, own_tmp=own_tmp)) for _ in range(2))
        first.say(str(250 * MIB))
        assert first.hear() == "has it as 1"
        second.say(str(250 * MIB))
        assert second.hear().startswith("NodeOutOfMemory")
        here = WorkerStack(DECLARED, NODE, "outside")
        assert here.budget.shared is not None and here.budget.shared.used_by_all == 250 * MIB
        assert [(each.name, each.pid) for each in here.budget.shared.participants()][:2] == [("contained", 1)] * 2
        first.process.kill()
        first.process.wait()
        block = here.resource.allocate("300MiB")
        here.resource.deallocate(block)
        here.close()
    eventually(lambda: not beacons(NODE.key), "nothing is left")


def test_containers_that_start_at_the_same_time_make_one_budget() -> None:
    namespaces, own_tmp = KINDS["all of that"]
    with ExitStack() as containers:
        made = [containers.enter_context(contained(WORKER, *namespaces, own_tmp=own_tmp)) for _ in range(4)]
        for each in made:
            each.say(str(10 * MIB))
        assert [each.hear() for each in made] == ["has it as 1"] * 4
        with_all = WorkerStack(DECLARED, NODE, "outside")
        assert with_all.budget.shared is not None and with_all.budget.shared.used_by_all == 40 * MIB
        with_all.close()


def test_a_process_whose_user_this_namespace_does_not_know_is_refused_with_the_reason() -> None:
    def attempt() -> str:
        enter_user_namespace()
        try:
            WorkerStack(DECLARED, NODE, "stranger")
        except errors.DistributedError as refusal:
            return str(refusal)
        return "it was let in"

    here = WorkerStack(DECLARED, NODE, "outside")
    with other_user(attempt) as stranger:
        assert "has no number for" in stranger.report
    assert here.budget.shared is not None and len(here.budget.shared.participants()) == 1
    here.close()


CLOCK = """
import sys
from tensormem.distributed.clocks import read_clock
for line in sys.stdin:
    print(*read_clock(), flush=True)
"""


def test_the_clock_of_a_container_that_is_set_off_is_measured_although_the_machine_is_the_same() -> None:
    with contained(CLOCK, "--time", "--monotonic=5000") as there:

        def read() -> ClockReading:
            there.say("now?")
            clock, moment = there.hear().split()
            return ClockReading(clock, int(moment))

        read()  # it has to start first
        offset = estimate_offset(read)
    assert abs(offset.offset_ns + 5_000 * 10**9) <= offset.error_ns < 10**9


def test_a_clock_that_jumps_while_it_is_measured_has_an_error_as_large_as_the_jump() -> None:
    jumps = iter([0, 0, 0, 7 * 10**9, 7 * 10**9])
    offset = estimate_offset(lambda: ClockReading("another", time.monotonic_ns() + next(jumps)), rounds=5)
    assert offset.error_ns >= 3 * 10**9 and abs(offset.offset_ns) <= offset.error_ns
