"""Owns: a Ray cluster of two nodes on loopback. Import it before `ray`, which reads its settings when it is imported.

Must not know: what runs on it.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.update(
    {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keeps 127.0.0.1 what it is
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_rdt_fetch_fail_timeout_milliseconds": "100000",  # an actor imports PyTorch first, if it is there
        # Workers import what stands beside the examples.
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
)

LEFT, RIGHT = {"left": 0.001}, {"right": 0.001}
"""Resources that put an actor on one of the two nodes."""


@contextmanager
def two_nodes(store_bytes: int = 128 << 20) -> Iterator[None]:
    """The cluster, with this process as its driver, on the left node."""
    import ray
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="tm-ray-", dir="/tmp")  # short: below it are sockets
    os.environ["RAY_TMPDIR"] = folder
    cluster = Cluster(shutdown_at_exit=False)
    common: dict[str, Any] = {
        "num_cpus": 2,
        "object_store_memory": store_bytes,
        "node_ip_address": "127.0.0.1",
        "temp_dir": f"{folder}/ray",
        "include_log_monitor": False,
    }
    try:
        cluster.add_node(resources={"left": 1.0}, include_dashboard=False, no_monitor=True, **common)
        cluster.add_node(resources={"right": 1.0}, **common)
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR, namespace="example")
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
