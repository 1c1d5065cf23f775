"""Owns: the set-up of a worker by Dask's preload mechanism, for who starts workers and not clients:
`dask worker ADDRESS --preload tensormem.distributed.dask.preload --tensormem budget=8GiB,limit=2GiB`.

Without the option, Dask's configuration says what is declared. Must not know: how a worker is set up.
"""

from __future__ import annotations

import click
from distributed import Worker

from tensormem.distributed.dask.configuration import configured_declaration
from tensormem.distributed.dask.internals import add_plugin
from tensormem.distributed.dask.plugin import TensormemPlugin
from tensormem.distributed.declaration import Declaration

__all__ = ["dask_setup"]


@click.command()
@click.option("--tensormem", "declared", default="", help="What the worker is to have, such as budget=8GiB,limit=2GiB.")
async def dask_setup(worker: Worker, declared: str) -> None:
    """Called by Dask in the worker, before it has its first task. What is wrong ends the worker, in its log."""
    declaration = Declaration.from_text(declared) if declared else configured_declaration()
    await add_plugin(worker, TensormemPlugin(declaration))
