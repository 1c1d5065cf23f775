"""Owns: what every worker of a Dask cluster has: each is asked over the engine's own connections.

Must not know: how a stack counts.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from distributed import Client

from tensormem.distributed.clocks import ClockOffset, ClockReading, estimate_offset, read_clock
from tensormem.distributed.cluster_table import ClusterStats, of_rows
from tensormem.distributed.dask.internals import run_everywhere
from tensormem.distributed.process_stack import installed
from tensormem.errors import DistributedError

__all__ = ["clock_offsets", "cluster_stats"]


def _row_here() -> dict[str, Any] | None:
    stack = installed()
    return None if stack is None else stack.stats().as_dict()


def cluster_stats(client: Client, *, timeout: float = 30.0) -> ClusterStats:
    """What every worker that was set up has now. Workers that do not answer are `silent`."""
    if not isinstance(client, Client):
        raise DistributedError(f"a Dask client is needed, not {type(client).__name__}")
    if client.status != "running":
        raise DistributedError(f"the scheduler has gone: the client is {client.status}")
    try:
        answers = run_everywhere(client, _row_here, timeout)
    except TimeoutError:
        raise DistributedError(f"the scheduler did not answer within {timeout} s") from None
    except OSError as error:
        raise DistributedError(f"the scheduler cannot be reached: {error}") from None
    rows = [answer for answer in answers.values() if isinstance(answer, dict)]
    silent = [str(name) for name, answer in answers.items() if isinstance(answer, BaseException)]
    return of_rows("dask", rows, silent)


def clock_offsets(client: Client) -> dict[str, ClockOffset]:
    """How far the clock of each node is from ours, by the name of the node in `cluster_stats`."""
    offsets: dict[str, ClockOffset] = {}
    for address, row in client.run(_row_here).items():
        if row is not None and row["node"] not in offsets:
            offsets[row["node"]] = estimate_offset(partial(_read_clock, client, address))
    return offsets


def _read_clock(client: Client, address: str) -> ClockReading:
    answer: ClockReading = client.run(read_clock, workers=[address])[address]
    return answer
