"""Owns: the declaration that Dask's own configuration has: the section `tensormem` of its files, and its environment
variables such as `DASK_TENSORMEM__BUDGET`; then `TENSORMEM_DECLARATION`.

Must not know: workers.
"""

from __future__ import annotations

import dask.config

from tensormem.config import get_config
from tensormem.distributed.declaration import Declaration
from tensormem.errors import DistributedError, InvalidArgument

__all__ = ["configured_declaration"]


def configured_declaration() -> Declaration:
    """What the configuration declares; a `DistributedError` where nothing does.

    >>> with dask.config.set({"tensormem.budget": "8GiB", "tensormem.limit": "2GiB"}):
    ...     configured_declaration().limit
    2147483648
    """
    section = dask.config.get("tensormem", default=None)
    if section:
        if not isinstance(section, dict):
            raise InvalidArgument(f"the section tensormem of Dask's configuration has fields, not {section!r:.80}")
        return Declaration.from_fields(section)
    text = get_config().declaration
    if text == "none":
        raise DistributedError(
            "nothing is declared: give a Declaration, or write a section tensormem with a budget into Dask's "
            "configuration, or set DASK_TENSORMEM__BUDGET or TENSORMEM_DECLARATION"
        )
    return Declaration.from_text(text)
