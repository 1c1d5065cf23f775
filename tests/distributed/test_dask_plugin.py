"""Workers of a real Dask cluster under one declaration: one budget per host, spilling, errors with names, SIGKILL."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from textual.pilot import Pilot

import tensormem as tm
from support.clusters import dask_cluster, eventually
from support.dask_work import (
    array_of,
    double_block,
    drop_kept,
    handed_over,
    keep,
    look_at_arrays,
    make,
    page_address,
    stats_here,
    sum_of,
    total,
)
from support.screens import drive_cluster, head_of, text_of, until
from tensormem import errors
from tensormem.cli import clusters
from tensormem.cli.files import Refusal
from tensormem.distributed import Declaration, Node, WorkerStats, cluster_stats, write_clocks
from tensormem.distributed import dask as tm_dask
from tensormem.distributed.worker_discovery import members
from tensormem.top.screen import ClusterApp
from tensormem.trace import merge
from tensormem.trace import open as open_trace

pytest.importorskip("distributed")

MIB = 1 << 20
BUDGET = 64 * MIB
PATH = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
DECLARED = Declaration(budget=BUDGET, keep=0, patience=20)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with dask_cluster(memory_limit="2GiB", env=PATH) as made:
        made.register_plugin(tm_dask.TensormemPlugin(DECLARED))
        node = Node.here("dask", f"{made.scheduler_info()['id']}@127.0.0.1")
        assert len(members(node.key)) == 2
        yield made
    eventually(lambda: not members(node.key), "no worker is left, and no budget")


@pytest.fixture
def workers(client: Any) -> Iterator[list[str]]:
    yield sorted(client.scheduler_info(-1)["workers"])
    client.run(drop_kept)
    eventually(lambda: sum(row.used for row in cluster_stats(client).rows) == 0, "everything has gone back")


def test_the_workers_of_a_host_share_one_budget_and_a_refusal_names_them(client: Any, workers: list[str]) -> None:
    first, second = workers[:2]
    client.run(keep, 40 * MIB, workers=[first])
    with pytest.raises(errors.NodeOutOfMemory) as raised:
        client.run(keep, 30 * MIB, workers=[second])
    refusal = raised.value
    pid = client.run(os.getpid, workers=[second])[second]
    assert (refusal.requested, refusal.total_free) == (30 * MIB, BUDGET - 40 * MIB)
    assert f"pid {pid}" in refusal.worker and f"dask-{os.uname().nodename}" in refusal.node
    assert client.run(os.getpid, workers=[second])[second] == pid, "the process lives on"


def test_workers_that_are_set_up_hand_shared_memory_over_by_descriptor(client: Any, workers: list[str]) -> None:
    first, second = workers[:2]
    before = client.run(handed_over, workers=[second])[second]
    made = client.submit(lambda: tm.full(1000, 7, "uint8", memory="shm"), workers=[first], pure=False)
    used = client.submit(lambda tensor: (str(tensor.memory), sum(tensor.tolist())), made, workers=[second], pure=False)
    assert used.result(timeout=60) == ("shm", 7000)
    assert client.run(handed_over, workers=[second])[second] == before + 1


def test_a_worker_spills_its_results_when_another_needs_memory(client: Any, workers: list[str]) -> None:
    first, second = workers[:2]
    made = [client.submit(make, number, 8 * MIB, workers=[first], pure=False) for number in range(6)]
    eventually(lambda: all(each.done() for each in made), "the tensors are there")
    before = {row.pid: row for row in cluster_stats(client).rows}
    pid = client.run(os.getpid, workers=[first])[first]
    assert (before[pid].used, before[pid].spilled) == (48 * MIB, 0)
    client.run(keep, 32 * MIB, workers=[second])
    row = {row.pid: row for row in cluster_stats(client).rows}[pid]
    assert (row.used, row.evicted) == (32 * MIB, 16 * MIB)
    assert row.times_asked > before[pid].times_asked
    assert row.spilled >= 16 * MIB
    on_disk = client.run(lambda dask_worker: dict(dask_worker.data.disk.data.weight_by_key), workers=[first])[first]
    assert sum(size.disk for size in on_disk.values()) >= 1, "the bytes were really written"
    client.run(drop_kept)
    assert client.gather(client.map(total, made, workers=[first], pure=False)) == [n * 8 * MIB for n in range(6)]
    back = {row.pid: row for row in cluster_stats(client).rows}[pid]
    assert (back.used, back.spilled) == (48 * MIB, 0), "what came back from the disk counts again"


def test_a_worker_that_is_short_spills_its_own_results_first(client: Any, workers: list[str]) -> None:
    (first,) = workers[:1]
    made = [client.submit(make, number, 16 * MIB, workers=[first], pure=False) for number in range(6)]
    assert client.gather(client.map(total, made, workers=[first], pure=False)) == [n * 16 * MIB for n in range(6)]
    pid = client.run(os.getpid, workers=[first])[first]
    assert {row.pid: row for row in cluster_stats(client).rows}[pid].evicted > 0


def row_of(client: Any, worker: str) -> WorkerStats:
    return WorkerStats.from_dict(client.run(stats_here, workers=[worker])[worker])


def test_arrays_over_our_tensors_go_by_descriptor_and_count_where_they_arrive(client: Any, workers: list[str]) -> None:
    first, second = workers[:2]
    before = client.run(handed_over, workers=[second])[second]
    shared = client.submit(array_of, 3, 4 * MIB, "shm", 64, workers=[first], pure=False)
    plain = client.submit(array_of, 2, 8 * MIB, "mem", 64, workers=[first], pure=False)
    seen = client.submit(look_at_arrays, [shared, plain], workers=[second], pure=False).result(timeout=60)
    assert seen == [("ndarray", True, 3 * 4 * MIB, "shm"), ("ndarray", True, 2 * 8 * MIB, "mem")]
    assert client.run(handed_over, workers=[second])[second] == before + 1
    assert row_of(client, second).received == 8 * MIB


def test_arrays_that_were_spilled_count_again_when_they_come_back(client: Any, workers: list[str]) -> None:
    first, second = workers[:2]
    made = [client.submit(array_of, number, 8 * MIB, "mem", workers=[first], pure=False) for number in range(6)]
    eventually(lambda: all(each.done() for each in made), "the arrays are there")
    client.run(keep, 32 * MIB, workers=[second])
    assert row_of(client, first).used == 32 * MIB
    client.run(drop_kept)
    sums = client.map(sum_of, made, workers=[first], pure=False)
    assert client.gather(sums) == [number * 8 * MIB for number in range(6)]
    assert row_of(client, first).used == 48 * MIB


def test_a_dask_array_may_be_made_of_tensors_and_return_tensors(client: Any, workers: list[str]) -> None:
    import dask.array as da
    import numpy as np

    tensor = tm.from_numpy(np.arange(64.0).reshape(8, 8))
    array = da.from_array(tensor, chunks=4)
    assert float((array + 1).sum().compute()) == 2016 + 64
    doubled = array.map_blocks(double_block, dtype="float64")
    assert float(doubled[1:, ::2].sum().compute()) == 2 * np.arange(64.0).reshape(8, 8)[1:, ::2].sum()
    assert (doubled.rechunk((8, 1)).compute() == 2 * tensor.numpy()).all()
    assert float(doubled.map_blocks(np.sqrt).sum().compute()) == pytest.approx(np.sqrt(2 * tensor.numpy()).sum())


def test_what_comes_over_a_connection_counts_as_long_as_it_lives(client: Any, workers: list[str]) -> None:
    first, second = workers[:2]
    made = client.submit(make, 3, 24 * MIB, workers=[first], pure=False)
    small = client.submit(lambda: [make(1, 4096), {"deep": make(2, 8192)}], workers=[first], pure=False)
    used = client.submit(lambda tensor, few: total(tensor), made, small, workers=[second], pure=False)
    assert used.result(timeout=60) == 3 * 24 * MIB
    row = row_of(client, second)
    assert (row.used, row.received, row.owed) == (24 * MIB + 12288, 24 * MIB + 12288, 0)
    assert row.live == row.used and row.peak >= row.used
    assert row_of(client, first).received == 0
    del made, used, small
    # What `workers` then sees: the shares of both have gone back.


def test_what_arrives_makes_others_spill_and_counts_then(client: Any, workers: list[str]) -> None:
    first, second = workers[:2]
    made = client.submit(make, 1, 20 * MIB, workers=[first], pure=False)
    wanted = client.submit(make, 2, 20 * MIB, workers=[first], pure=False)
    eventually(lambda: bool(made.done() and wanted.done()), "the tensors are there")
    client.run(keep, 10 * MIB, workers=[second])
    assert client.submit(total, wanted, workers=[second], pure=False).result(timeout=60) == 2 * 20 * MIB
    rows = row_of(client, first), row_of(client, second)
    assert (rows[1].used, rows[1].received, rows[1].owed) == (30 * MIB, 20 * MIB, 0)
    assert rows[0].used <= 20 * MIB <= rows[0].spilled


def test_an_input_that_does_not_fit_fails_its_task_and_the_workers_go_on(client: Any, workers: list[str]) -> None:
    first, second = workers[:2]
    made = client.submit(make, 5, 20 * MIB, workers=[first], pure=False)
    eventually(lambda: bool(made.done()), "the tensor is there")
    client.run(keep, 44 * MIB, workers=[second])
    pid = client.run(os.getpid, workers=[second])[second]
    refusal = client.submit(total, made, workers=[second], pure=False).exception(timeout=60)
    assert isinstance(refusal, errors.NodeOutOfMemory)
    assert (refusal.requested, refusal.total_free) == (20 * MIB, 0) and f"pid {pid}" in refusal.worker
    row = row_of(client, second)
    assert (row.used, row.received, row.owed) == (44 * MIB, 0, 0) and row.refusals and row.spilled >= 20 * MIB
    client.run(drop_kept)
    assert client.submit(total, made, workers=[second], pure=False).result(timeout=60) == 5 * 20 * MIB
    assert row_of(client, second).received == 20 * MIB


def test_the_heartbeat_and_the_page_of_a_worker_have_its_memory(client: Any, workers: list[str]) -> None:
    (first,) = workers[:1]
    client.run(keep, 4 * MIB, workers=[first])

    def told() -> bool:
        metrics = client.scheduler_info(-1)["workers"][first]["metrics"]
        return bool(metrics.get("tensormem", {}).get("used") == 4 * MIB)

    eventually(told, "the scheduler has heard of it")
    with urlopen(client.run(page_address, workers=[first])[first], timeout=20) as answer:
        page = answer.read().decode()
    name = client.run(stats_here, workers=[first])[first]["worker"]
    (line,) = [line for line in page.splitlines() if line.startswith("tensormem_used{") and name in line]
    assert float(line.split()[-1]) == 4 * MIB


def test_the_command_shows_the_cluster_to_somebody_who_connects_from_outside(client: Any, workers: list[str]) -> None:
    client.run(keep, 6 * MIB, workers=workers[:1])
    command = [sys.executable, "-m", "tensormem", "top", "--dask", client.scheduler.address]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert sorted(row["used"] for row in json.loads(done.stdout)["workers"]) == [0, 6 * MIB]
    done = subprocess.run([*command, "--once", "--no-color"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "fragmentation" in done.stdout and "6 MiB" in done.stdout


def test_the_live_screen_shows_the_workers_and_goes_on_when_one_dies(client: Any, workers: list[str]) -> None:
    client.run(keep, 6 * MIB, workers=workers[:1])
    pid = client.run(os.getpid, workers=workers[:1])[workers[0]]

    async def steps(app: ClusterApp, pilot: Pilot[None]) -> None:
        def pids() -> set[int]:
            return set() if app.stats is None else {row.pid for row in app.stats.rows}

        await until(pilot, lambda: pid in pids() and "6 MiB" in text_of(app), "it does not show the worker")
        assert "dask: 2 workers on 1 node, 6 MiB used" in head_of(app)
        os.kill(pid, signal.SIGKILL)
        await until(pilot, lambda: pid not in pids(), "the dead worker stays")
        await until(pilot, lambda: len(pids()) == 2 and "2 workers" in head_of(app), "its successor does not come")
        await until(pilot, lambda: " 6 MiB" not in text_of(app), "the figures of the dead worker stay")
        assert not app.lost
        await pilot.press("p")
        assert "paused" in head_of(app)
        await pilot.press("q")

    drive_cluster(lambda: cluster_stats(client), steps)


def test_who_leaves_the_live_screen_can_come_back_and_a_lost_scheduler_leaves_the_last_figures(
    client: Any, workers: list[str]
) -> None:
    client.run(keep, 6 * MIB, workers=workers[:1])

    async def look(app: ClusterApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "6 MiB" in text_of(app), "it does not show the worker")
        await pilot.press("q")

    async def lose(app: ClusterApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "6 MiB" in text_of(app), "it does not show the worker")
        other.cluster.close()
        await until(pilot, lambda: "these are the last figures" in head_of(app), "it does not say that nobody answers")
        assert app.stats is not None  # of whenever the last answer came: the cluster may have been closing then
        assert all(row.worker in text_of(app) for row in app.stats.rows)

    assert not drive_cluster(lambda: cluster_stats(client), look).lost
    assert not drive_cluster(lambda: cluster_stats(client), look, width=80).lost
    with dask_cluster(workers=1, memory_limit="2GiB", env=PATH) as other:
        other.register_plugin(tm_dask.TensormemPlugin(DECLARED))
        other.run(keep, 6 * MIB)
        assert drive_cluster(lambda: cluster_stats(other, timeout=5), lose).lost


def test_where_no_scheduler_is_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 0.5)
    nobody = clusters.cluster_of(None, "tcp://127.0.0.1:1")
    with pytest.raises(Refusal, match=r"no Dask scheduler at tcp://127\.0\.0\.1:1"), nobody:
        raise AssertionError("connected to nobody")


def test_another_declaration_and_another_version_are_refused_and_change_nothing(client: Any) -> None:
    with pytest.raises(errors.SetUpConflict, match="was set up as"):
        client.register_plugin(tm_dask.TensormemPlugin(Declaration(budget="1GiB")), name="another")
    odd = tm_dask.TensormemPlugin(DECLARED)
    odd._text = odd._text.replace('"tensormem": "0.1', '"tensormem": "7.1')
    with pytest.raises(errors.VersionSkew, match=r"7\.1\.0"):
        client.register_plugin(odd, name="odd")
    assert {row.budget for row in cluster_stats(client).rows} == {BUDGET}


def test_a_killed_worker_returns_its_share_and_its_successor_is_set_up(client: Any, workers: list[str]) -> None:
    first, second = workers[:2]
    made = client.submit(make, 1, 8 * MIB, workers=[second], pure=False)
    assert client.submit(total, made, workers=[first], pure=False).result(timeout=60) == 8 * MIB
    client.run(keep, 48 * MIB, workers=[first])
    assert row_of(client, first).used == 56 * MIB, "8 of them came over a connection"
    del made
    pid = client.run(os.getpid, workers=[first])[first]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the killed worker has gone")
    client.run(keep, BUDGET, workers=[second])
    client.wait_for_workers(2, timeout=60)
    eventually(lambda: len(cluster_stats(client).rows) == 2, "the successor is set up")
    assert sum(row.used for row in cluster_stats(client).rows) == BUDGET


def test_when_the_plugin_goes_the_workers_are_as_before(client: Any) -> None:
    client.run(drop_kept)
    client.unregister_worker_plugin("tensormem")
    assert cluster_stats(client).rows == []
    assert set(client.run(stats_here).values()) == {None}
    client.register_plugin(tm_dask.TensormemPlugin(Declaration(budget="32MiB")))
    assert {row.budget for row in cluster_stats(client).rows} == {32 * MIB}


def test_recordings_of_all_workers_become_one_timeline_with_their_clocks(client: Any, tmp_path: Path) -> None:
    client.unregister_worker_plugin("tensormem")
    client.register_plugin(tm_dask.TensormemPlugin(Declaration(budget="32MiB", trace=str(tmp_path))))
    for place, address in enumerate(sorted(client.scheduler_info(-1)["workers"])):
        client.run(keep, (place + 1) * MIB, workers=[address])
    assert set(write_clocks(tmp_path / "clocks.json", client).values()) == {(0, 0)}, "one machine, one clock"
    names = set(json.loads((tmp_path / "clocks.json").read_text())["offsets"])
    client.run(drop_kept)
    client.unregister_worker_plugin("tensormem")
    files = sorted(tmp_path.glob("*.tmt"))
    assert {file.name for file in files} == names and len(files) == 2
    with (tmp_path / "all.tmt").open("wb") as out:
        assert all(source.complete for source in merge(files, out))
    with open_trace(tmp_path / "all.tmt") as trace:
        asked = [event.nbytes for event in trace.events() if event.kind == "allocate" and event.depth == 0]
        assert asked == [MIB, 2 * MIB], "in the order in which two processes did it"
