"""Owns: a cluster on the command line: connecting to its engine, and its table.

Must not know: how a cluster is asked.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.table import Table
from rich.text import Text

from tensormem import errors
from tensormem.cli.files import Refusal
from tensormem.distributed import ClusterStats, cluster_stats

_Ask = Callable[[], ClusterStats]
CONNECT_SECONDS = 20.0


@contextmanager
def cluster_of(ray_address: str | None, dask_address: str | None) -> Iterator[_Ask]:
    """A function that asks the cluster at an address, while we are connected to it."""
    try:
        with _ray(ray_address) if ray_address is not None else _dask(str(dask_address)) as ask:
            yield ask
    except errors.DistributedError as error:
        raise Refusal(str(error)) from None


@contextmanager
def _ray(address: str) -> Iterator[_Ask]:
    try:
        import ray
    except ImportError:
        raise Refusal("Ray is not installed (pip install tensormem[ray])") from None
    _check_reachable(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise Refusal(f"there is no Ray cluster at {address}: {error}") from None
    try:
        yield cluster_stats
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself would wait for minutes for somebody to come."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return  # "auto", or a name that Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise Refusal(f"there is no Ray cluster at {address}: {error}") from None


@contextmanager
def _dask(address: str) -> Iterator[_Ask]:
    try:
        from distributed import Client
    except ImportError:
        raise Refusal("Dask is not installed (pip install tensormem[dask])") from None
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise Refusal(f"there is no Dask scheduler at {address}: {error}") from None
    with client:
        yield lambda: cluster_stats(client)


def table_of(stats: ClusterStats, *, verbose: bool = False) -> Table:
    """The workers by node, and a line for each node."""
    head, *lines = stats.table()
    table = Table(box=None, pad_edge=False, header_style="dim", caption=None if lines else "no worker was set up")
    for place, title in enumerate(head):
        width = None if place < 2 else max(len(line[place]) for line in lines) if lines else None
        table.add_column(title, justify="left" if place < 2 else "right", no_wrap=True, min_width=width)
    for line in lines:
        table.add_row(*(Text(cell) for cell in line), style="bold" if line[1].startswith("all ") else None)
    if verbose:
        for row in stats.rows:
            tags = ", ".join(f"{tag} {nbytes:,}" for tag, nbytes in row.tags.items())
            table.add_row(Text(row.node), Text(f"{row.worker}: {row.used:,} bytes; {tags}"), style="dim")
    return table
