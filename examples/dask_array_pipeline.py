"""A Dask array whose blocks live in our pools: made there, computed there, moved between workers, and given back.

Each worker has a pool with statistics. Blocks are NumPy arrays over its memory; what NumPy makes of them comes from the
pool as well. Run `python examples/dask_array_pipeline.py`; it ends with 1 if the result differs from NumPy's own.
"""

import argparse
import sys
import tempfile
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import tensormem as tm

SIDE = 512  # of a block
SETTINGS = {"distributed.admin.system-monitor.gil.enabled": False, "distributed.comm.timeouts.connect": "60s"}


def install_pool() -> None:
    """A pool for this worker, and the counts of what it does."""
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    tm.mr.set_current_device_resource(tm.mr.StatisticsResourceAdaptor(pool))


def statistics() -> dict[str, int]:
    """What this worker's pool did."""
    mr: Any = tm.mr.get_current_device_resource()
    counted = mr.allocation_counts
    return {"blocks": counted.total_count, "peak": counted.peak_bytes, "left": counted.current_bytes}


def make_block(block_info: Any = None) -> np.ndarray[Any, Any]:
    """One block in the pool's memory; its values follow from its place."""
    row, column = block_info[None]["chunk-location"]
    block = tm.empty((SIDE, SIDE), "float64").numpy()
    block[:] = np.arange(SIDE)[:, None] + SIDE * row + np.arange(SIDE) * (column + 1)
    return np.asarray(block)


def smooth(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Some work whose results NumPy takes from the pool."""
    with tm.interop.numpy.use(tm.mr.get_current_device_resource()):
        return np.asarray(np.sqrt(block) + 1.0)


def pipeline(blocks: int) -> Any:
    """The array, its work, and a sum across the blocks of all workers."""
    chunks = ((SIDE,) * blocks, (SIDE,) * blocks)
    made = da.map_blocks(make_block, chunks=chunks, dtype="float64", meta=np.empty((0, 0)))
    smoothed = made.map_blocks(smooth, dtype="float64", meta=np.empty((0, 0)))
    return (smoothed + smoothed.T).sum()


def expected(blocks: int) -> float:
    """The same by NumPy alone."""
    rows = np.arange(SIDE * blocks)[:, None]
    columns = np.concatenate([np.arange(SIDE) * (column + 1) for column in range(blocks)])
    smoothed = np.sqrt(rows + columns) + 1.0
    return float((smoothed + smoothed.T).sum())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=6, help="along each side")
    blocks = parser.parse_args().blocks
    with (
        dask.config.set(SETTINGS),
        tempfile.TemporaryDirectory(prefix="tm-dask-") as folder,
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            local_directory=folder,
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(install_pool)
        result = float(pipeline(blocks).compute())
        workers = client.run(statistics)
    print(f"{blocks * blocks} blocks of {SIDE * SIDE * 8 / 2**20:.0f} MiB on {len(workers)} workers, in their pools")
    for number, counts in enumerate(workers.values(), 1):
        peak = f"{counts['peak'] / 2**20:.1f} MiB at most"
        print(f"worker {number}: {counts['blocks']} allocations, {peak}, {counts['left']} bytes left")
    right = np.isclose(result, expected(blocks))
    print("The sum is NumPy's own." if right else f"The sum is {result}, not {expected(blocks)}.")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
