"""Owns: the set-up of all workers of a cluster from its client, which is told in a sentence what is missing.

Must not know: what a worker does with a declaration.
"""

from __future__ import annotations

from distributed import Client

from tensormem.distributed.dask.configuration import configured_declaration
from tensormem.distributed.dask.plugin import TensormemPlugin
from tensormem.distributed.declaration import VERSION, Declaration
from tensormem.errors import DistributedError

__all__ = ["check_workers", "setup"]


def setup(client: Client, declaration: Declaration | None = None) -> None:
    """Set up every worker, those that come later too, as declared here or in Dask's configuration.

    A `DistributedError` names the workers on which tensormem is not installed, or in another version: they could not
    even say so themselves.
    """
    declared = configured_declaration() if declaration is None else declaration
    check_workers(client)
    client.register_plugin(TensormemPlugin(declared))


def check_workers(client: Client) -> None:
    """Refuse a cluster on which not everybody has this version of tensormem."""
    found = client.get_versions(packages=["tensormem"])
    versions = {"the scheduler": found["scheduler"], **found["workers"]}
    wrong = {name: (facts or {}).get("packages", {}).get("tensormem") for name, facts in versions.items()}
    missing = [name for name, version in wrong.items() if not version]
    others = [f"{name} has {version}" for name, version in wrong.items() if version and version != VERSION]
    if missing:
        raise DistributedError(
            f"tensormem is not installed on {', '.join(sorted(missing))}: install {VERSION} there too"
        )
    if others:
        raise DistributedError(
            f"this client has tensormem {VERSION}, and {', '.join(sorted(others))}: install one version"
        )
