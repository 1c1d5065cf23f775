"""The declaration, the presence of a node's workers and their one budget, without any engine: in real processes."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import tensormem as tm
from support.holdings import no_new_descriptor_or_thread
from support.waiting import eventually
from tensormem import errors
from tensormem.distributed import ClusterStats, Declaration, Node, NodeBudget, WorkerStack, WorkerStats, installed
from tensormem.distributed.late_setup import LateSetUp
from tensormem.distributed.looking import node_rows
from tensormem.distributed.node_entry import entry
from tensormem.distributed.process_stack import install, uninstall
from tensormem.distributed.worker_discovery import Presence, ask, members

MIB = 1 << 20
NODE = Node.here("test", f"node-of-{os.getpid()}")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"budget": 0}, "at least one byte"),
        ({"guaranteed": "1MiB"}, "needs a budget"),
        ({"budget": "1MiB", "limit": "2MiB"}, "more than the budget"),
        ({"budget": "8MiB", "limit": "1MiB", "guaranteed": "2MiB"}, "cannot be guaranteed"),
        ({"pool": "puddle"}, "a pool is one of elastic, pool"),
        ({"priority": 0}, "priority"),
        ({"patience": -1}, "patience"),
        ({"metrics_seconds": "often"}, "metrics_seconds"),
        ({"tags": "yes"}, "tags"),
        ({"limit": "12 potatoes"}, "potatoes"),
        ({"budget": "8MiB", "job_budget": "1MiB"}, "needs the name of the job"),
        ({"job": "train", "job_budget": "1MiB"}, "the node's budget"),
        ({"budget": "1MiB", "job": "train", "job_budget": "2MiB"}, "more than the budget of its node"),
        ({"budget": "8MiB", "job": "train", "job_budget": "1MiB", "limit": "2MiB"}, "budget of its job"),
        ({"job": ""}, "name of a job"),
        ({"job": 7}, "job"),
    ],
)
def test_what_cannot_be_right_is_refused_on_the_driver(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=says):
        Declaration(**fields)


def test_a_declaration_survives_its_travel_and_another_version_is_named() -> None:
    declared = Declaration(budget="1GiB", limit="100MiB", pool="pool", tags=True, trace="traces")
    assert Declaration.from_json(declared.to_json()) == declared
    for text in ("", "{}", "[1]", Declaration().to_json().replace("keep", "puddle")):
        with pytest.raises(errors.InvalidArgument, match="no declaration"):
            Declaration.from_json(text)
    with pytest.raises(errors.VersionSkew) as raised:
        Declaration.from_json(declared.to_json().replace(f'"{tm.__version__}"', '"99.0.1"'))
    assert (raised.value.ours, raised.value.theirs) == (tm.__version__, "99.0.1")


@contextmanager
def peer(declared: Declaration, work: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process of the node; it says "ready", and ends when its standard input does."""
    program = f"""
        import sys
        import tensormem as tm
        from tensormem.distributed import Declaration, Node
        from tensormem.distributed.process_stack import install
        stack = install(Declaration.from_json({declared.to_json()!r}), Node.here("test", {NODE.id!r}), "peer")
        """
    code = textwrap.dedent(program) + textwrap.dedent(work) + "\nprint('ready', flush=True)\nsys.stdin.readline()\n"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def test_processes_of_a_node_find_one_budget_and_a_killed_one_returns_its_share() -> None:
    declared = Declaration(budget="32MiB", keep=0)
    with peer(declared, "kept = tm.empty(20 << 20, 'uint8')") as other:
        stack = WorkerStack(declared, NODE, "here")
        with pytest.raises(errors.NodeOutOfMemory) as raised:
            stack.resource.allocate("16MiB")
        assert raised.value.total_free == 12 * MIB
        rows = {row["worker"]: row for row in node_rows(NODE)}
        assert (rows["peer"]["used"], rows["peer"]["pid"], rows["here"]["used"]) == (20 * MIB, other.pid, 0)
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        block = stack.resource.allocate("32MiB")
        assert [row["worker"] for row in node_rows(NODE)] == ["here"]
        stack.resource.deallocate(block)
        stack.close()
    assert members(NODE.key) == []


def test_the_ledger_outlives_who_made_it() -> None:
    declared = Declaration(budget="32MiB", keep=0)
    with peer(declared) as maker:
        stack = WorkerStack(declared, NODE, "second")
        block = stack.resource.allocate("30MiB")
        os.kill(maker.pid, signal.SIGKILL)
        maker.wait()
        with peer(declared):
            rows = {row["worker"]: row["used"] for row in node_rows(NODE)}
            assert rows == {"second": 30 * MIB, "peer": 0}
        stack.resource.deallocate(block)
        stack.close()


def is_stopped(pid: int) -> bool:
    return all(" T " in task.joinpath("stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir())


def test_a_process_that_does_not_answer_is_known_from_the_ledger() -> None:
    declared = Declaration(budget="32MiB", keep=0)
    with peer(declared, "kept = tm.empty(4 << 20, 'uint8')") as other, NodeBudget(NODE, declared, "here", dict):
        os.kill(other.pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(other.pid), "it does not stop")
        rows = [WorkerStats.from_dict(row) for row in node_rows(NODE, timeout=0.2) if row]
        (silent,) = [row for row in rows if row.pid == other.pid]
        assert (silent.worker, silent.used, silent.answered) == ("peer", 4 * MIB, False)
        assert "peer (no answer)" in str(ClusterStats("test", [silent]))
        os.kill(other.pid, signal.SIGCONT)


def test_another_budget_for_the_same_node_is_refused_and_names_who_was_first() -> None:
    with peer(Declaration(budget="32MiB")) as other:
        for declared in (Declaration(budget="33MiB"), Declaration()):
            with pytest.raises(errors.SetUpConflict, match=f"process {other.pid} declared 32 MiB"):
                WorkerStack(declared, NODE, "here")
        other_node = Node.here("test", NODE.id + "-of-another-cluster")
        WorkerStack(Declaration(budget="33MiB"), other_node, "here").close()


def test_who_is_killed_at_the_entry_lets_the_next_one_in() -> None:
    code = (
        "import sys\nfrom tensormem.distributed.node_entry import entry\n"
        f"with entry({NODE.key!r}):\n    print('inside', flush=True)\n    sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "inside\n"
        with pytest.raises(errors.DistributedError, match="has been entering"), entry(NODE.key, timeout=0.05):
            pass
        process.kill()
        process.wait()
        with entry(NODE.key):
            pass


def test_installing_twice_is_once_and_what_was_current_comes_back() -> None:
    before = tm.mr.get_current_device_resource()
    declared = Declaration(budget="32MiB", limit="16MiB", tags=True)
    stack = install(declared, NODE, "here")
    assert install(declared, NODE, "here") is stack and installed() is stack
    assert tm.mr.get_current_device_resource() is stack.resource
    with pytest.raises(errors.SetUpConflict, match="was set up as"):
        install(Declaration(budget="16MiB"), NODE, "here")
    with tm.tag("weights"):
        tensor = tm.empty(1000, "uint8")
    assert stack.stats().tags == {"weights": 1000}
    uninstall()
    with pytest.raises(errors.TenantInUse):
        uninstall()
    assert tm.mr.get_current_device_resource() is stack.resource, "nothing has changed"
    del tensor
    uninstall()
    assert tm.mr.get_current_device_resource() is before and installed() is None
    uninstall()
    assert members(NODE.key) == []


def test_by_force_blocks_live_on_and_count_until_they_go() -> None:
    declared = Declaration(budget="32MiB", keep=0)
    install(declared, NODE, "here")
    tensor = tm.zeros(MIB, "uint8")
    with peer(declared) as _:
        uninstall(force=True)
        assert tensor[5].item() == 0
        del tensor
    assert members(NODE.key) == []


def test_evictors_are_asked_in_turn_until_there_is_room_and_a_failing_one_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stack = WorkerStack(Declaration(budget="8MiB", keep=0), NODE, "here")
    kept = [stack.resource.allocate("2MiB") for _ in range(4)]

    @stack.on_pressure
    def fails(wanted: int) -> None:
        raise RuntimeError(f"{wanted} are too many")

    def drops(wanted: int) -> None:
        stack.resource.deallocate(kept.pop(0))

    stack.on_pressure(drops, lambda: 7)
    block = stack.resource.allocate("4MiB")
    stats = stack.stats()
    assert len(kept) == 2 and [text for text in caplog.messages if "make room" in text]
    assert (stats.spilled, stats.evicted, stats.refusals) == (7, 4 * MIB, 0)
    stack.forget(drops)
    with pytest.raises(errors.NodeOutOfMemory):
        stack.resource.allocate("4MiB")
    with pytest.raises(errors.NodeOutOfMemory, match="16,777,216"):
        stack.resource.allocate("16MiB")
    assert stack.stats().refusals == 2
    for each in (block, *kept):
        stack.resource.deallocate(each)
    stack.close()


def test_a_worker_with_a_pool_gives_back_under_pressure_too() -> None:
    stack = WorkerStack(Declaration(budget="64MiB", pool="pool"), NODE, "here")
    stack.resource.deallocate(stack.resource.allocate("3MiB"))
    assert stack.stats().used > 0 and stack.stats().live == 0
    assert stack.relieve(MIB) > 0
    assert stack.stats().used == 0
    stack.close()


@pytest.mark.parametrize("budget", ["8MiB", None])
def test_received_memory_counts_with_the_blocks_and_what_does_not_fit_is_owed(budget: str | None) -> None:
    stack = WorkerStack(Declaration(budget=budget, limit="6MiB", keep=0), NODE, "here")
    kept = stack.received.take_in(bytearray(4 * MIB), 4 * MIB)
    owing = stack.received.take_in(bytearray(3 * MIB), 3 * MIB)
    stats = stack.stats()
    assert (stats.used, stats.live, stats.received, stats.owed) == (4 * MIB, 4 * MIB, 4 * MIB, 3 * MIB)
    for refused in (owing.pay, lambda: stack.resource.allocate("3MiB")):
        with pytest.raises(errors.NodeOutOfMemory, match=r"here \(pid"):
            refused()
    with pytest.raises(errors.TenantInUse):
        stack.close()
    kept.release()
    kept.release()
    owing.pay()
    owing.pay()
    stats = stack.stats()
    assert (stats.used, stats.received, stats.owed, stats.peak, stats.refusals) == (3 * MIB, 3 * MIB, 0, 4 * MIB, 2)
    owing.release()
    assert stack.stats().used == 0
    stack.close()


def test_received_memory_that_an_evictor_lets_go_makes_room() -> None:
    stack = WorkerStack(Declaration(budget="8MiB", keep=0), NODE, "here")
    kept = [stack.received.take_in(bytearray(2 * MIB), 2 * MIB) for _ in range(4)]
    stack.on_pressure(lambda wanted: kept.pop().release())
    stack.on_pressure(lambda wanted: kept.pop().release())
    block = stack.resource.allocate("4MiB")
    assert (len(kept), stack.stats().evicted, stack.stats().refusals) == (2, 4 * MIB, 0)
    stack.resource.deallocate(block)
    while kept:
        kept.pop().release()
    stack.close()


def test_received_memory_that_outlives_its_stack_is_still_given_back() -> None:
    declared = Declaration(budget="8MiB", keep=0)
    stack = WorkerStack(declared, NODE, "here")
    kept = stack.received.take_in(bytearray(MIB), MIB)
    stack.close(force=True)
    del stack
    kept.release()
    assert members(NODE.key) == []


def test_more_than_64_workers_take_part_in_a_node() -> None:
    declared = Declaration(budget="70MiB", keep=0)
    with ExitStack() as others:
        for number in range(66):
            stack = WorkerStack(declared, NODE, f"worker {number}")
            others.callback(stack.close)
        block = stack.resource.allocate("70MiB")
        assert len(members(NODE.key)) == 66
        stack.resource.deallocate(block)
    assert members(NODE.key) == []


@pytest.mark.parametrize("pool", ["elastic", "pool"])
def test_idle_pages_of_a_worker_within_its_share_go_before_anybody_is_refused(pool: str) -> None:
    declared = Declaration(budget="64MiB", keep="64MiB", patience=60, pool=pool)
    idle = "for _ in range(1):\n    kept = tm.empty(30 << 20, 'uint8')\ndel kept"
    with peer(declared, idle):
        (row,) = node_rows(NODE)
        assert row["used"] >= 30 * MIB and row["live"] == 0
        assert pool == "pool" or row["idle"] == row["used"]
        stack = WorkerStack(declared, NODE, "here")
        block = stack.resource.allocate("62MiB")
        assert next(row["used"] for row in node_rows(NODE) if row["worker"] == "peer") <= 2 * MIB
        assert [row["evicted"] for row in node_rows(NODE)] == [0, 0], "nobody lost anything"
        stack.resource.deallocate(block)
        stack.close()


def test_two_jobs_have_each_its_budget_inside_the_one_of_the_node() -> None:
    train = Declaration(budget="32MiB", keep=0, job="train", job_budget="20MiB")
    serve = Declaration(budget="32MiB", keep=0, job="serve", job_budget="24MiB")
    with peer(train, "kept = tm.empty(16 << 20, 'uint8')"):
        second, other = WorkerStack(train, NODE, "second"), WorkerStack(serve, NODE, "other")
        with pytest.raises(errors.NodeOutOfMemory, match="that of its job train 20,971,520") as raised:
            second.resource.allocate("8MiB")
        assert (raised.value.total_free, raised.value.largest_free) == (16 * MIB, 4 * MIB)
        block = other.resource.allocate("16MiB")
        rows = {row["worker"]: (row["job"], row["job_budget"], row["used"]) for row in node_rows(NODE)}
        assert rows == {
            "peer": ("train", 20 * MIB, 16 * MIB),
            "second": ("train", 20 * MIB, 0),
            "other": ("serve", 24 * MIB, 16 * MIB),
        }
        with pytest.raises(errors.SetUpConflict, match="others of the job declared another budget"):
            WorkerStack(Declaration(budget="32MiB", job="train", job_budget="21MiB"), NODE, "odd")
        other.resource.deallocate(block)
        for stack in (second, other):
            stack.close()


def test_a_worker_whose_guarantee_does_not_fit_is_refused_in_words_and_let_in_when_there_is_room() -> None:
    declared = Declaration(budget="32MiB", guaranteed="20MiB")
    with peer(declared) as other:
        with pytest.raises(errors.SetUpConflict, match="12 MiB left to guarantee"):
            WorkerStack(declared, NODE, "here")
        late = LateSetUp(lambda: WorkerStack(declared, NODE, "here"), "the late one")
        with pytest.raises(errors.SetUpConflict, match=r"12 MiB left to guarantee.*the late one"):
            late.resource.allocate(MIB)
        other.kill()
        other.wait()
        block = late.resource.allocate(MIB)
        (row,) = node_rows(NODE)
        assert (row["worker"], row["live"]) == ("here", MIB)
        late.resource.deallocate(block)
        assert node_rows(NODE)[0]["live"] == 0


def test_a_declaration_may_be_text_and_what_is_wrong_with_it_is_said() -> None:
    assert Declaration.from_text("budget=1GiB,tags=True,priority=3,pool=pool") == Declaration(
        budget="1GiB", tags=True, priority=3, pool="pool"
    )
    for text, says in (("budgt=1", "has no 'budgt'"), ("tags=perhaps", "tags cannot be"), ("budget", "budget|size")):
        with pytest.raises(errors.InvalidArgument, match=says):
            Declaration.from_text(text)


def test_a_worker_that_cannot_answer_yet_goes_on_answering() -> None:
    answers: list[Any] = [ZeroDivisionError(), {"used": 7}]

    def answer() -> dict[str, Any]:
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return dict(said)

    with Presence(NODE.key, -1, 0, answer) as here:
        assert ask(here.member) is None
        assert ask(here.member) == {"used": 7}


def test_nothing_is_left_behind() -> None:
    with no_new_descriptor_or_thread():
        install(Declaration(budget="32MiB"), NODE, "here")
        uninstall()
