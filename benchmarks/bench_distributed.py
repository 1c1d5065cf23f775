"""Question: what does it take to get memory from one worker to another, through Ray and Dask?

The clock starts where the user's does: before what is made anew is made, and before what is kept is asked for.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
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
SIZES = (1 << 10, 1 << 20, 256 << 20)
SMALL, COUNT = 4096, 10_000  # many small ones: their elements of 4 bytes, and how many
REPEATS = 9
WARM_UP = 2
MILLISECONDS = Metric("ms", "from the call until it is read (ms)")

PUT_NUMPY, PUT_OURS = "Ray put + get, NumPy", "Ray put + get, tensormem"
STORE, DESCRIPTOR = "Ray actor to actor, NumPy in the object store", "Ray actor to actor, tensormem by descriptor"
DASK_NUMPY, DASK_OURS = "Dask worker to worker, NumPy", "Dask worker to worker, tensormem"
DASK_DESCRIPTOR = "Dask worker to worker, tensormem by descriptor"
KEPT, ANEW, MANY = ", kept", ", made anew", f", {COUNT:,} of 4 KiB"


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
            object_store_memory=8 * SIZES[-1],
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


def in_turns(ways: Mapping[str, Callable[[], float]], say: Callable[[str], None], case: int) -> list[Row]:
    """Milliseconds of each way; a slow moment of the machine hits all of them. `case` is how many bytes go."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(WARM_UP + REPEATS):
        for name, way in ways.items():
            say(f"{case:,} bytes, turn {turn + 1}: {name}")
            seconds = way()
            if turn >= WARM_UP:
                taken[name].append(seconds * 1000)
    return [
        Row(name, case, {"ms": statistics.median(each), "fastest_ms": min(each), "slowest_ms": max(each)})
        for name, each in taken.items()
    ]


def many(make: Callable[[int], Any]) -> list[Any]:
    """A list of small ones."""
    return [make(SMALL) for _ in range(COUNT)]


def read_many(values: list[Any]) -> int:
    """Touch the first and the last."""
    return int(values[0][0].item()) + int(values[-1][-1].item())


def measure_puts(say: Callable[[str], None]) -> list[Row]:
    import ray

    def put_and_get(make: Callable[[], Any], look: Callable[[Any], int]) -> Callable[[], float]:
        value = make()

        def timed() -> float:
            start = time.perf_counter()
            assert look(ray.get(ray.put(value))) == 2
            return time.perf_counter() - start

        return timed

    rows = []
    for nbytes in SIZES:
        makers = {PUT_NUMPY: make_array, PUT_OURS: make_tensor}
        ways = {name: put_and_get(partial(make, nbytes), read) for name, make in makers.items()}
        rows += in_turns(ways, say, nbytes)
    lists = {PUT_NUMPY + MANY: make_array, PUT_OURS + MANY: make_tensor}
    ways = {name: put_and_get(partial(many, make), read_many) for name, make in lists.items()}
    return [*rows, *in_turns(ways, say, SMALL * COUNT)]


def measure_actors(say: Callable[[str], None]) -> list[Row]:
    import ray

    from tensormem.distributed.ray import register_transport, share

    register_transport()

    class Maker:
        def keep(self, nbytes: int) -> None:
            self.array, self.tensor = make_array(nbytes), make_shared(nbytes)

        def give(self) -> Any:
            return self.array

        def give_anew(self, nbytes: int) -> Any:
            return make_array(nbytes)

        @ray.method(tensor_transport="tensormem")  # type: ignore[untyped-decorator]
        def hand_over(self) -> Any:
            return share(self.tensor)

        @ray.method(tensor_transport="tensormem")  # type: ignore[untyped-decorator]
        def hand_over_anew(self, nbytes: int) -> Any:
            return share(make_shared(nbytes))

    class Reader:
        def read(self, value: Any) -> int:
            return int(value[0].item()) + int(value[-1].item())

    maker = ray.remote(num_cpus=0)(Maker).remote()
    reader = ray.remote(num_cpus=0, enable_tensor_transport=True)(Reader).remote()

    def through(method: Any, *arguments: int) -> float:
        start = time.perf_counter()
        assert ray.get(reader.read.remote(method.remote(*arguments))) == 2
        return time.perf_counter() - start

    rows = []
    for nbytes in SIZES:
        ray.get(maker.keep.remote(nbytes))
        ways = {
            STORE + KEPT: partial(through, maker.give),
            DESCRIPTOR + KEPT: partial(through, maker.hand_over),
            STORE + ANEW: partial(through, maker.give_anew, nbytes),
            DESCRIPTOR + ANEW: partial(through, maker.hand_over_anew, nbytes),
        }
        rows += in_turns(ways, say, nbytes)
    return rows


def make_array(nbytes: int) -> Any:
    return np.ones(nbytes, "uint8")


def make_tensor(nbytes: int) -> Any:
    return tm.full(nbytes, 1, "uint8")


def make_shared(nbytes: int) -> Any:
    return tm.full(nbytes, 1, "uint8", memory="shm")


@contextmanager
def dask_workers() -> Iterator[Any]:
    """A client with two workers that hand memory over."""
    import dask
    from distributed import Client, LocalCluster

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
        yield client


def measure_dask(say: Callable[[str], None]) -> list[Row]:
    from distributed import wait

    with dask_workers() as client:
        first, second = client.scheduler_info()["workers"]

        def move(make: Callable[[], Any], look: Callable[[Any], int], *, anew: bool) -> float:
            start = time.perf_counter()
            made = client.submit(make, workers=[first], pure=False)
            if not anew:
                wait(made)
                start = time.perf_counter()
            assert client.submit(look, made, workers=[second], pure=False).result() == 2
            return time.perf_counter() - start

        rows = []
        makers = {DASK_NUMPY: make_array, DASK_OURS: make_tensor, DASK_DESCRIPTOR: make_shared}
        for nbytes in SIZES:
            ways = {
                name + suffix: partial(move, partial(make, nbytes), read, anew=suffix == ANEW)
                for suffix in (KEPT, ANEW)
                for name, make in makers.items()
            }
            rows += in_turns(ways, say, nbytes)
        lists = {DASK_NUMPY + MANY: make_array, DASK_OURS + MANY: make_tensor}
        ways = {name: partial(move, partial(many, make), read_many, anew=False) for name, make in lists.items()}
        return [*rows, *in_turns(ways, say, SMALL * COUNT)]


def measure(say: Callable[[str], None]) -> list[Row]:
    with ray_node():
        rows = [*measure_puts(say), *measure_actors(say)]
    return [*rows, *measure_dask(say)]


QUESTION = Question(
    name="distributed",
    title="Memory between the workers of Ray and of Dask",
    asks="From the call until the other side has read the first and the last byte: of what was kept, and of what is "
    "made anew for it, which counts then. The object store and Dask's connection carry NumPy's arrays and our tensors "
    "in the same run; by descriptor the memory itself is handed over.",
    case_label="bytes",
    metrics=[MILLISECONDS],
    measure=measure,
    pairs=(
        (PUT_OURS, PUT_NUMPY),
        (PUT_OURS + MANY, PUT_NUMPY + MANY),
        *((DESCRIPTOR + each, STORE + each) for each in (KEPT, ANEW)),
        *((DASK_OURS + each, DASK_NUMPY + each) for each in (KEPT, ANEW, MANY)),
        *((DASK_DESCRIPTOR + each, DASK_NUMPY + each) for each in (KEPT, ANEW)),
    ),
    packages=("tensormem", "numpy", "ray", "distributed"),
)

if __name__ == "__main__":
    for row in measure(lambda text: print(text, file=sys.stderr)):
        print(f"{row.peer:62}{row.case:12,}{row.values['ms']:10.1f} ms")
