"""Workers of a real Ray cluster under one declaration: one budget per node, errors with names, eviction, SIGKILL.

The cluster has two nodes on loopback; each counts as a node of its own.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

import tensormem as tm
from support.clusters import RayCluster, eventually, ray_cluster
from support.memory_servers import Server, allocate_in_a_task
from support.screens import drive_cluster, head_of, text_of, until
from tensormem import errors
from tensormem.cli.clusters import cluster_of
from tensormem.cli.files import Refusal
from tensormem.distributed import ClusterStats, Declaration, Node, cluster_stats
from tensormem.distributed import ray as tm_ray
from tensormem.distributed.worker_discovery import members
from tensormem.top.screen import ClusterApp

ray: Any = pytest.importorskip("ray")

MIB = 1 << 20
BUDGET = 64 * MIB
PATH = {"env_vars": {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}}
DECLARED = Declaration(budget=BUDGET, keep=0, tags=True, patience=20, metrics_seconds=0.5)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(connect=False) as made:
        ray.init(address=made.address, log_to_driver=False, runtime_env=tm_ray.runtime_env(DECLARED, PATH))
        try:
            yield made
        finally:
            ray.shutdown()
    keys = [Node.here("ray", node).key for node in made.nodes]
    eventually(lambda: not any(members(key) for key in keys), "no worker is left, and no budget")


def servers(count: int, **options: Any) -> list[Any]:
    made = [ray.remote(num_cpus=0)(Server).options(**options).remote() for _ in range(count)]
    ray.get([each.where.remote() for each in made])
    return made


def end(*actors: Any) -> None:
    pids = [ray.get(actor.where.remote())[0] for actor in actors]
    for actor in actors:
        ray.kill(actor)
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the actors have ended")


def on(cluster: RayCluster, place: int) -> dict[str, Any]:
    """Options of an actor for the first or the second node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(cluster.nodes[place], soft=False)}


def used_by_node(stats: ClusterStats) -> dict[str, int]:
    return {node.node: node.used for node in stats.nodes()}


def test_the_workers_of_a_node_share_one_budget_and_those_of_another_node_another(cluster: RayCluster) -> None:
    here = servers(2, **on(cluster, 0))
    (there,) = servers(1, **on(cluster, 1))
    ray.get([here[0].take.remote(40 * MIB), there.take.remote(60 * MIB)])
    with pytest.raises(ray.exceptions.RayTaskError) as raised:
        ray.get(here[1].take.remote(30 * MIB))
    refusal = raised.value.cause
    assert isinstance(refusal, errors.NodeOutOfMemory)
    pid, node = ray.get(here[1].where.remote())
    assert (refusal.requested, refusal.total_free) == (30 * MIB, BUDGET - 40 * MIB)
    assert f"pid {pid}" in refusal.worker and node[:12] in refusal.node
    ray.get(here[0].drop.remote())
    assert ray.get(here[1].take.remote(30 * MIB)) == 30 * MIB, "the process lives on"
    assert sorted(used_by_node(cluster_stats()).values()) == [30 * MIB, 60 * MIB]
    end(*here, there)


def test_tasks_are_set_up_as_actors_are(cluster: RayCluster) -> None:
    assert ray.get(ray.remote(allocate_in_a_task).remote(4 * MIB)) == (4 * MIB, BUDGET)


def test_a_killed_worker_returns_its_share_to_the_node(cluster: RayCluster) -> None:
    doomed, heir = servers(2, **on(cluster, 1))
    ray.get(doomed.take.remote(56 * MIB))
    with pytest.raises(ray.exceptions.RayTaskError):
        ray.get(heir.take.remote(32 * MIB))
    pid, _ = ray.get(doomed.where.remote())
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "the killed worker has gone")
    assert ray.get(heir.take.remote(BUDGET)) == BUDGET
    rows = [row for row in cluster_stats().rows if row.used]
    assert [(row.used, row.pid) for row in rows] == [(BUDGET, ray.get(heir.where.remote())[0])]
    end(heir)


def test_under_pressure_a_cache_goes_into_the_object_store_and_comes_back(cluster: RayCluster) -> None:
    holder, needy = servers(2, **on(cluster, 1))
    ray.get(holder.fill_cache.remote(6, 8 * MIB))
    assert ray.get(holder.look.remote()) == (48 * MIB, 0, 0)
    assert ray.get(needy.take.remote(32 * MIB)) == 32 * MIB
    used, spilled, evicted = ray.get(holder.look.remote())
    assert (used, spilled, evicted) == (32 * MIB, 16 * MIB, 16 * MIB)
    (row,) = [row for row in cluster_stats().rows if row.spilled]
    assert (row.spilled, row.times_asked) == (16 * MIB, 1)
    ray.get(needy.drop.remote())
    assert ray.get(holder.value.remote(0)) == (0, 8 * MIB)
    assert ray.get(holder.value.remote(5)) == (5, 8 * MIB)
    assert ray.get(holder.look.remote())[:2] == (40 * MIB, 8 * MIB)
    end(holder, needy)


def test_pairs_in_a_cache_are_as_large_as_they_are_and_come_back_as_they_were(cluster: RayCluster) -> None:
    holder, needy = servers(2, **on(cluster, 1))
    ray.get(holder.fill_with_pairs.remote(10, 4 * MIB))
    assert ray.get(needy.take.remote(32 * MIB)) == 32 * MIB
    assert ray.get(holder.evicted.remote()) == [0, 1], "two make the room, and the lock stays"
    ray.get(needy.drop.remote())
    assert ray.get(holder.pair.remote(1)) == (1 + 77, 2, False)
    assert ray.get(holder.evicted.remote()) == [0]
    end(holder, needy)


def test_statistics_of_the_cluster_are_a_table_json_and_html(cluster: RayCluster) -> None:
    (server,) = servers(1)
    ray.get(server.take.remote(2 * MIB))
    stats = cluster_stats()
    assert stats.silent == []
    (row,) = [row for row in stats.rows if row.used]
    assert (row.used, row.budget, row.engine, row.tags) == (2 * MIB, BUDGET, "ray", {"untagged": 2 * MIB})
    assert "2 MiB" in str(stats) and "fragmentation" in str(stats)
    assert stats.as_dict()["workers"][stats.rows.index(row)]["used"] == 2 * MIB
    assert "<table>" in stats._repr_html_()
    end(server)


def test_what_is_got_from_the_object_store_is_the_stores_memory_and_does_not_count(cluster: RayCluster) -> None:
    (server,) = servers(1)
    assert ray.get(server.hold.remote(ray.put(tm.zeros(4 * MIB, "uint8")))) == (4 * MIB, True)
    (pid, _) = ray.get(server.where.remote())
    (row,) = [row for row in cluster_stats().rows if row.pid == pid]
    assert (row.used, row.received, row.owed) == (0, 0, 0)
    end(server)


def test_another_declaration_and_another_version_are_refused_in_words(cluster: RayCluster) -> None:
    (server,) = servers(1)
    assert ray.get(server.attempt.remote(DECLARED.to_json())) == ("fine", "")
    name, text = ray.get(server.attempt.remote(Declaration(budget="1GiB").to_json()))
    assert name == "SetUpConflict" and "was set up as" in text
    other = DECLARED.to_json().replace('"tensormem": "0.1', '"tensormem": "7.1')
    name, text = ray.get(server.attempt.remote(other))
    assert name == "VersionSkew" and "7.1.0" in text
    assert ray.get(server.restore.remote()), "what was current before is current again"
    end(server)


def test_a_worker_that_cannot_be_set_up_says_so_when_it_allocates(cluster: RayCluster) -> None:
    wrong = tm_ray.runtime_env(Declaration(budget=BUDGET * 2))
    (keeper,) = servers(1, **on(cluster, 1))  # a node without workers would take any budget
    (odd,) = servers(1, runtime_env=wrong, **on(cluster, 1))
    with pytest.raises(ray.exceptions.RayTaskError) as raised:
        ray.get(odd.take.remote(MIB))
    refusal = raised.value.cause
    assert isinstance(refusal, errors.SetUpConflict)
    pid, node = ray.get(odd.where.remote())
    assert f"pid {pid}" in str(refusal) and node[:12] in str(refusal) and "128 MiB" in str(refusal)
    end(keeper)
    eventually(lambda: not members(Node.here("ray", cluster.nodes[1]).key), "those with the other budget have gone")
    assert ray.get(odd.take.remote(2 * MIB)) == 2 * MIB, "it is let in as soon as it can be"
    (row,) = [row for row in cluster_stats().rows if row.used]
    assert (row.pid, row.budget) == (pid, 2 * BUDGET)
    end(odd)


def test_a_worker_of_another_version_says_so_with_the_advice_that_helps(cluster: RayCluster) -> None:
    skewed = tm_ray.runtime_env(DECLARED)
    skewed["env_vars"]["TENSORMEM_DECLARATION"] = DECLARED.to_json().replace('"tensormem": "0.1', '"tensormem": "7.1')
    (odd,) = servers(1, runtime_env=skewed)
    with pytest.raises(ray.exceptions.RayTaskError) as raised:
        ray.get(odd.take.remote(MIB))
    refusal = raised.value.cause
    assert isinstance(refusal, errors.VersionSkew) and "7.1.0" in str(refusal)
    assert "same version of tensormem" in str(refusal) and "Tear down" not in str(refusal)
    end(odd)


def test_an_environment_may_declare_in_a_few_words_and_ray_counts_what_a_worker_may_have(cluster: RayCluster) -> None:
    words = {"TENSORMEM_DECLARATION": f"budget={BUDGET},keep=0,limit=32MiB,tags=true"}
    hook = "tensormem.distributed.ray.worker_setup.install_from_environment"
    size = tm_ray.memory_options(Declaration(budget=BUDGET, limit="32MiB"))
    assert size == {"memory": 32 * MIB}
    before = ray.available_resources()["memory"]
    (server,) = servers(1, runtime_env={"env_vars": words, "worker_process_setup_hook": hook}, **size)
    (pid, _) = ray.get(server.where.remote())
    (row,) = [row for row in cluster_stats().rows if row.pid == pid]
    assert (row.budget, row.limit) == (BUDGET, 32 * MIB)
    eventually(lambda: ray.available_resources()["memory"] == before - 32 * MIB, "Ray's scheduler knows of it")
    end(server)
    with pytest.raises(errors.InvalidArgument, match="has no size"):
        tm_ray.memory_options(Declaration(budget=BUDGET))


def test_the_command_shows_the_cluster_to_somebody_who_connects_from_outside(cluster: RayCluster) -> None:
    (server,) = servers(1, **on(cluster, 1))
    ray.get(server.take.remote(6 * MIB))
    pid, _ = ray.get(server.where.remote())
    command = [sys.executable, "-m", "tensormem", "top", "--ray", cluster.address]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    (row,) = [row for row in json.loads(done.stdout)["workers"] if row["used"]]
    assert (row["pid"], row["used"], row["budget"]) == (pid, 6 * MIB, BUDGET)
    end(server)


def test_the_live_screen_shows_the_workers_of_all_nodes_and_goes_on_when_one_dies(cluster: RayCluster) -> None:
    (doomed,) = servers(1, **on(cluster, 0))
    (other,) = servers(1, **on(cluster, 1))
    ray.get([doomed.take.remote(6 * MIB), other.take.remote(10 * MIB)])
    pid, _ = ray.get(doomed.where.remote())

    async def watch(app: ClusterApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: " 6 MiB" in text_of(app) and " 10 MiB" in text_of(app), "it shows not both")
        assert "on 2 nodes, 16 MiB used" in head_of(app)
        os.kill(pid, signal.SIGKILL)
        await until(pilot, lambda: " 6 MiB" not in text_of(app), "the dead worker stays")
        await until(pilot, lambda: ", 10 MiB used" in text_of(app), "the sum is wrong")
        assert not app.lost
        await pilot.press("q")

    async def come_back(app: ClusterApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "10 MiB" in text_of(app), "it does not show the worker that lives")

    drive_cluster(cluster_stats, watch)
    drive_cluster(cluster_stats, come_back, width=80)
    end(other)


def test_where_no_cluster_is_the_command_says_so() -> None:
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:999999"):
        with pytest.raises(Refusal, match=f"no Ray cluster at {address}"), cluster_of(address, None):
            raise AssertionError("connected to nobody")
