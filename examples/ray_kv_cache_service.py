"""A KV-cache service on a Ray cluster of two nodes: two model servers on each, one budget per node, one server killed.

Owns: the cluster on loopback, the story, and the table. Needs Ray (`pip install tensormem[ray]`).

    python examples/ray_kv_cache_service.py [--rounds 12] [--budget 48MiB]

Every server keeps the caches of its conversations. When its node is short of memory, the oldest go into Ray's object
store and come back when their conversation goes on. In the middle one server is killed: its share of the budget returns
to its node at once, Ray starts it again, and the service goes on.
"""

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# Ray reads these when it is imported; the second keeps loopback addresses what they are.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tensormem.distributed import Declaration, cluster_stats, installed
from tensormem.distributed import ray as tm_ray
from tensormem.units import format_size, parse_size

MODELS = ("chat", "code")
STEP_BYTES = 2 << 20  # keys and values of one turn
WAIT_SECONDS = 60.0


class ModelServer:
    """One model on one node: the caches of its conversations, a turn at a time."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.caches = tm_ray.EvictableCache()
        self.turns: dict[int, int] = {}

    def pid(self) -> int:
        return os.getpid()

    def node_used(self) -> dict[int, int]:
        """What the ledger of the node says that each of its processes has."""
        stack = installed()
        assert stack is not None and stack.budget.shared is not None
        return {each.pid: each.used for each in stack.budget.shared.participants()}

    def turn(self, conversation: int) -> int:
        """One more turn: its keys and values are made and kept, and those of the turn before are looked at."""
        import tensormem as tm

        count = self.turns.get(conversation, 0)
        if count:
            before = self.caches[conversation, count - 1]
            assert before[0].item() == (conversation + count - 1) % 256, "a cache came back with other contents"
        self.caches[conversation, count] = tm.full((STEP_BYTES,), (conversation + count) % 256, "uint8")
        self.turns[conversation] = count + 1
        return count + 1


@contextmanager
def two_nodes(declaration: Declaration) -> Iterator[list[str]]:
    """A cluster of two small nodes on loopback, whose workers are set up as declared; gives their ids."""
    folder = tempfile.mkdtemp(prefix="tm-ray-", dir="/tmp")
    os.environ["RAY_TMPDIR"] = folder
    node = {
        "num_cpus": 4,
        "object_store_memory": 150 << 20,
        "node_ip_address": "127.0.0.1",
        "temp_dir": f"{folder}/ray",
        "include_log_monitor": False,
    }
    cluster = Cluster(shutdown_at_exit=False)
    try:
        made = [cluster.add_node(include_dashboard=False, no_monitor=True, **node), cluster.add_node(**node)]
        ray.init(
            address=cluster.address,
            runtime_env=tm_ray.runtime_env(declaration),
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        yield [each.node_id for each in made]
    finally:
        ray.shutdown()
        cluster.shutdown()
        os.environ.pop("RAY_TMPDIR", None)
        shutil.rmtree(folder, ignore_errors=True)


def start_servers(nodes: Sequence[str]) -> dict[str, Any]:
    """Two servers on each node, by name; one that dies is started again."""
    server = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(ModelServer)
    servers = {
        f"{model} on node {place}": server.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(model)
        for place, node in enumerate(nodes, 1)
        for model in MODELS
    }
    ray.get([each.pid.remote() for each in servers.values()], timeout=WAIT_SECONDS)
    return servers


def serve(servers: dict[str, Any], rounds: int, first: int) -> dict[str, int]:
    """Every server has one turn of each of four conversations in each round; gives the turns of each."""
    done = dict.fromkeys(servers, 0)
    for number in range(first, first + rounds):
        asked = {name: server.turn.remote(number % 4) for name, server in servers.items()}
        for name, answer in asked.items():
            ray.get(answer, timeout=WAIT_SECONDS)
            done[name] += 1
    return done


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while os.path.exists(f"/proc/{pid}"):
        if time.monotonic() > end:
            raise TimeoutError(f"process {pid} is still there")
        time.sleep(0.01)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A KV-cache service on two Ray nodes, one of its servers killed.")
    parser.add_argument("--rounds", type=int, default=12, help="turns of every server, before and after")
    parser.add_argument("--budget", default="48MiB", help="memory of a node for all its servers (default: %(default)s)")
    given = parser.parse_args(arguments)
    budget = parse_size(given.budget)
    if given.rounds < 4 or budget < 8 * STEP_BYTES:
        parser.error(f"at least 4 rounds, and a budget of at least {format_size(8 * STEP_BYTES)}")
    declaration = Declaration(budget=budget, guaranteed=2 * STEP_BYTES, keep=0, patience=20)
    with two_nodes(declaration) as nodes:
        servers = start_servers(nodes)
        before = serve(servers, given.rounds, 0)
        print(f"after {given.rounds} turns of every server:\n{cluster_stats()}\n")
        victim = next(iter(servers))
        pid = ray.get(servers[victim].pid.remote())
        neighbour = servers[victim.replace(MODELS[0], MODELS[1])]
        used = ray.get(neighbour.node_used.remote())
        held = used[pid]
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid)
        returned = sum(used.values()) - sum(ray.get(neighbour.node_used.remote()).values())
        print(f"killed {victim} (pid {pid}): {format_size(returned)} of {format_size(held)} returned to its node\n")
        after = serve(servers, given.rounds, given.rounds)
        stats = cluster_stats()
        print(f"after {given.rounds} more:\n{stats}\n")
        assert all(node.used <= budget for node in stats.nodes()), "a node has more than its budget"
    print(f"{'server':16} {'turns before':>12} {'turns after':>12}")
    for name in servers:
        print(f"{name:16} {before[name]:12} {after[name]:12}{'  (killed between)' if name == victim else ''}")
    evicted = sum(row.evicted for row in stats.rows)
    print(f"\nevicted and brought back or kept in the object store: {format_size(evicted)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
