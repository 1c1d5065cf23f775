"""Question: what does it take to get 256 MiB from one worker to another, through Ray and Dask?"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tensormem as tm
from harness import Metric, Question, Row

RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keeps 127.0.0.1 what it is
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_rdt_fetch_fail_timeout_milliseconds": "100000",
}
NBYTES = 256 << 20
REPEATS = 9
WARM_UP = 2
MILLISECONDS = Metric("ms", "256 MiB, made to read (ms)")

PUT_NUMPY, PUT_OURS = "Ray put + get, NumPy", "Ray put + get, tensormem"
STORE, DESCRIPTOR = "Ray actor to actor, NumPy in the object store", "Ray actor to actor, tensormem by descriptor"
DASK_NUMPY, DASK_OURS = "Dask worker to worker, NumPy", "Dask worker to worker, tensormem"
DASK_DESCRIPTOR = "Dask worker to worker, tensormem by descriptor"


@contextmanager
def ray_node() -> Iterator[None]:
    """One node, with a store that holds a few of the arrays."""
    os.environ.update(RAY_SETTINGS)  # which Ray reads when it is imported
    import logging

    import ray

    folder = tempfile.mkdtemp(prefix="tm-ray-", dir="/tmp")
    try:
        ray.init(
            num_cpus=2,
            object_store_memory=8 * NBYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def read(value: Any) -> int:
    """Touch the first and the last byte: they are here."""
    return int(value[0].item()) + int(value[-1].item())


def in_turns(ways: dict[str, Callable[[], float]], say: Callable[[str], None]) -> list[Row]:
    """Milliseconds of each way; a slow moment of the machine hits all of them."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(WARM_UP + REPEATS):
        for name, way in ways.items():
            say(f"turn {turn + 1}: {name}")
            seconds = way()
            if turn >= WARM_UP:
                taken[name].append(seconds * 1000)
    return [
        Row(name, None, {"ms": statistics.median(each), "fastest_ms": min(each), "slowest_ms": max(each)})
        for name, each in taken.items()
    ]


def measure_puts(say: Callable[[str], None]) -> list[Row]:
    import ray

    array, tensor = make_array(), make_tensor()

    def put_and_get(value: Any) -> float:
        start = time.perf_counter()
        read(ray.get(ray.put(value)))
        return time.perf_counter() - start

    return in_turns({PUT_NUMPY: lambda: put_and_get(array), PUT_OURS: lambda: put_and_get(tensor)}, say)


def measure_actors(say: Callable[[str], None]) -> list[Row]:
    import ray

    from tensormem.distributed.ray import register_transport, share

    register_transport()

    class Maker:
        def __init__(self) -> None:
            self.array = np.ones(NBYTES, "uint8")
            self.tensor = tm.full(NBYTES, 1, "uint8", memory="shm")

        def give(self) -> Any:
            return self.array

        @ray.method(tensor_transport="tensormem")  # type: ignore[untyped-decorator]
        def hand_over(self) -> Any:
            return share(self.tensor)

    class Reader:
        def read(self, value: Any) -> int:
            return int(value[0].item()) + int(value[-1].item())

    maker = ray.remote(num_cpus=0)(Maker).remote()
    reader = ray.remote(num_cpus=0, enable_tensor_transport=True)(Reader).remote()

    def through(method: Any) -> float:
        start = time.perf_counter()
        assert ray.get(reader.read.remote(method.remote())) == 2
        return time.perf_counter() - start

    return in_turns({STORE: lambda: through(maker.give), DESCRIPTOR: lambda: through(maker.hand_over)}, say)


def make_array() -> Any:
    return np.ones(NBYTES, "uint8")


def make_tensor() -> Any:
    return tm.full(NBYTES, 1, "uint8")


def make_shared() -> Any:
    return tm.full(NBYTES, 1, "uint8", memory="shm")


def measure_dask(say: Callable[[str], None]) -> list[Row]:
    import dask
    from distributed import Client, LocalCluster, wait

    from tensormem.distributed.dask import HandOverPlugin

    with (
        tempfile.TemporaryDirectory(prefix="tm-dask-") as folder,
        dask.config.set({"distributed.comm.timeouts.connect": "60s"}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            local_directory=folder,
            memory_limit=0,
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(HandOverPlugin())
        first, second = client.scheduler_info()["workers"]

        def move(make: Callable[[], Any]) -> float:
            made = client.submit(make, workers=[first], pure=False)
            wait(made)
            start = time.perf_counter()
            assert client.submit(read, made, workers=[second], pure=False).result() == 2
            return time.perf_counter() - start

        ways = {DASK_NUMPY: make_array, DASK_OURS: make_tensor, DASK_DESCRIPTOR: make_shared}
        return in_turns({name: lambda make=make: move(make) for name, make in ways.items()}, say)  # type: ignore[misc]


def measure(say: Callable[[str], None]) -> list[Row]:
    with ray_node():
        rows = [*measure_puts(say), *measure_actors(say)]
    return [*rows, *measure_dask(say)]


QUESTION = Question(
    name="distributed",
    title="256 MiB between the workers of Ray and of Dask",
    asks="From the call until the other side has read the first and the last byte. The object store and Dask's "
    "connection carry NumPy's arrays and our tensors in the same run; by descriptor the memory itself is handed over.",
    case_label="",
    metrics=[MILLISECONDS],
    measure=measure,
    pairs=(
        (PUT_OURS, PUT_NUMPY),
        (DESCRIPTOR, STORE),
        (DASK_OURS, DASK_NUMPY),
        (DASK_DESCRIPTOR, DASK_NUMPY),
    ),
    packages=("tensormem", "numpy", "ray", "distributed"),
)

if __name__ == "__main__":
    for row in measure(lambda text: print(text, file=sys.stderr)):
        print(f"{row.peer:50}{row.values['ms']:10.1f} ms")
