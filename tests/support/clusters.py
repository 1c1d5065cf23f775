"""Owns: real clusters of Ray and Dask on this machine: loopback only, small, bounded in time, and stopped afterwards.

Import this before `ray`: Ray reads some of its settings when it is imported.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensormem as tm
from support.waiting import eventually as eventually

# Long enough for a machine under load; a cluster that hangs reaches it, and then the test has failed.
TIME_LIMIT = 100.0
FIRST, SECOND = {"first": 0.001}, {"second": 0.001}  # an actor with these resources lives on that node of a Ray cluster

TESTS = str(Path(__file__).resolve().parents[1])
_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keeps 127.0.0.1 what it is, instead of the address of this machine
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_rdt_fetch_fail_timeout_milliseconds": "100000",  # an actor imports PyTorch first, if it is there
    "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
    # Workers that are started ahead have no declaration, so the tests with one would start them for nothing.
    "RAY_prestart_worker_first_driver": "0",
}
os.environ.update(_RAY)


@dataclass(frozen=True)
class RayCluster:
    """Two nodes, of which the driver is on the first."""

    address: str
    nodes: tuple[str, ...]


@contextmanager
def ray_cluster(*, store_bytes: int = 200 << 20, connect: bool = True, nodes: int = 2) -> Iterator[RayCluster]:
    """A Ray cluster of small nodes; the driver is this process."""
    import ray
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    ray_constants.ENABLE_RAY_CLUSTER = False  # in case somebody imported it before this module
    # Not below a long directory: the paths of sockets are short.
    folder = tempfile.mkdtemp(prefix="tm-ray-", dir="/tmp")
    path = os.environ.get("PYTHONPATH")
    # The second so that workers find the modules of the tests.
    os.environ.update(RAY_TMPDIR=folder, PYTHONPATH=os.pathsep.join([TESTS, *([path] if path else [])]))
    common: dict[str, Any] = {
        "num_cpus": 2,
        "object_store_memory": store_bytes,
        "node_ip_address": "127.0.0.1",
        "temp_dir": f"{folder}/ray",
        "include_log_monitor": False,
    }
    cluster = Cluster(shutdown_at_exit=False)
    try:
        head = cluster.add_node(resources={"first": 1.0}, include_dashboard=False, no_monitor=True, **common)
        others = [cluster.add_node(resources={"second": 1.0}, **common) for _ in range(nodes - 1)]
        if connect:
            ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.WARNING, namespace="tests")
        yield RayCluster(cluster.address, tuple(node.node_id for node in (head, *others)))
    finally:
        if connect:
            ray.shutdown()
        cluster.shutdown()
        del os.environ["RAY_TMPDIR"], os.environ["PYTHONPATH"]
        if path is not None:
            os.environ["PYTHONPATH"] = path
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def dask_cluster(*, workers: int = 2, **options: Any) -> Iterator[Any]:
    """A Dask client, and worker processes of one thread each."""
    import dask
    from distributed import Client, LocalCluster

    settings = {
        "distributed.worker.use-file-locking": False,
        "distributed.comm.timeouts.connect": "60s",
        "distributed.admin.system-monitor.gil.enabled": False,
    }
    with tempfile.TemporaryDirectory(prefix="tm-dask-") as folder, dask.config.set(settings):
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address=None,
            local_directory=folder,
            silence_logs=50,
            **options,
        )
        try:
            with Client(cluster, timeout=TIME_LIMIT) as client:
                yield client
        finally:
            cluster.close(timeout=TIME_LIMIT)


def memory_descriptors(pid: int) -> list[str]:
    """The descriptors of memory that a process holds: shared memory of ours and DMA-BUFs."""
    if pid == os.getpid():
        tm.mr.SharedMemoryResource().trim()  # one file may be kept for the next
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue
        if target.startswith(("/memfd:tensormem", "/dmabuf", "anon_inode:dmabuf")):
            found.append(target)
    return sorted(found)
