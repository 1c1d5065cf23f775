"""A program: a Ray cluster of one node with metrics; prints our lines of the page that Prometheus reads on it.

A process of its own, because Ray reads its settings once, and other clusters of the tests have metrics switched off.
"""

import os
import shutil
import socket
import tempfile
import time
from typing import Any
from urllib.request import urlopen

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_metrics_report_interval_ms": "500",
}
os.environ.pop("RAY_enable_metrics_collection", None)

import ray

from tensormem.distributed import Declaration
from tensormem.distributed import ray as tm_ray

TIME_LIMIT = 60.0
NBYTES = 6 << 20


class Holder:
    def take(self, nbytes: int) -> None:
        import tensormem as tm

        self.kept = tm.empty(nbytes, "uint8")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def lines(port: int) -> list[str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return [line for line in answer.read().decode().splitlines() if line.startswith("ray_tensormem_")]
    except OSError:
        return []


def _is_told(line: str) -> bool:
    return line.startswith("ray_tensormem_used{") and float(line.split()[-1]) == NBYTES


def main() -> None:
    folder, port = tempfile.mkdtemp(prefix="tm-ray-", dir="/tmp"), free_port()
    environment = tm_ray.runtime_env(Declaration(budget="64MiB", metrics_seconds=0.2))
    options: dict[str, Any] = {"_metrics_export_port": port, "_node_ip_address": "127.0.0.1", "_temp_dir": folder}
    try:
        ray.init(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False, runtime_env=environment, **options)
        holder = ray.remote(num_cpus=0)(Holder).remote()
        ray.get(holder.take.remote(NBYTES))
        end = time.monotonic() + TIME_LIMIT
        while time.monotonic() < end and not any(_is_told(line) for line in lines(port)):
            time.sleep(0.1)
        print("\n".join(lines(port)))
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
