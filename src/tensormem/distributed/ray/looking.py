"""Owns: what every worker of a Ray cluster has: one small task on each node asks the workers there.

Must not know: how workers answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tensormem.distributed.clocks import ClockOffset, estimate_offset, read_clock
from tensormem.distributed.cluster_node import Node
from tensormem.distributed.cluster_table import ClusterStats, of_rows
from tensormem.distributed.looking import node_rows
from tensormem.distributed.ray.worker_setup import DECLARATION, NO_DECLARATION
from tensormem.errors import DistributedError

__all__ = ["clock_offsets", "cluster_stats"]


def _rows_here() -> list[dict[str, Any]]:
    node = Node.here("ray", ray.get_runtime_context().get_node_id())
    return node_rows(node)


def cluster_stats(*, timeout: float = 30.0) -> ClusterStats:
    """What every worker that was set up has now. Nodes that do not answer within `timeout` seconds are `silent`."""
    if not ray.is_initialized():
        raise DistributedError("this process is not connected to Ray: call ray.init first")
    end = time.monotonic() + timeout
    look = _onlooker(_rows_here)
    nodes = _alive()
    asked = {name: look.options(scheduling_strategy=_on(name)).remote() for name in nodes}
    rows, silent = [], []
    for name, answer in asked.items():
        try:
            rows += ray.get(answer, timeout=max(end - time.monotonic(), 0.01))
        except ray.exceptions.RayError:
            silent.append(nodes[name].name)
            ray.cancel(answer, force=True)
    return of_rows("ray", rows, silent)


def clock_offsets(*, timeout: float = 30.0) -> dict[str, ClockOffset]:
    """How far the clock of each node is from ours, by the name of the node in `cluster_stats`."""
    offsets = {}
    read = _onlooker(read_clock)
    for name, node in _alive().items():
        there = read.options(scheduling_strategy=_on(name))
        ray.get(there.remote(), timeout=timeout)  # the first one may start a process
        offsets[node.name] = estimate_offset(partial(_get, there, timeout))
    return offsets


def _onlooker(function: Callable[[], Any]) -> Any:
    """A task that takes no part in the budget of the node it looks at."""
    options: dict[str, Any] = {"num_cpus": 0, "max_retries": 0}
    environment = ray.get_runtime_context().runtime_env.get("env_vars", {})
    if DECLARATION in environment:
        options["runtime_env"] = {"env_vars": {DECLARATION: NO_DECLARATION}}
    return ray.remote(**options)(function)


def _get(remote: Any, timeout: float) -> Any:
    return ray.get(remote.remote(), timeout=timeout)


def _alive() -> dict[str, Node]:
    """The nodes by their ids, named as their own processes name them."""
    living = [node for node in ray.nodes() if node["Alive"]]
    return {node["NodeID"]: Node("ray", node["NodeID"], node["NodeManagerHostname"], "") for node in living}


def _on(node: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node, soft=False)
