"""Owns: which node a process is on: the machine since its last start, the engine, and what the engine calls the node.

Two clusters on one machine are two nodes; so are two nodes that one engine has on one machine.
Must not know: budgets.
"""

from __future__ import annotations

import socket
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

__all__ = ["Node", "boot_id"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """What tells this start of this machine from every other."""
    return _BOOT_ID.read_text().strip()


class Node(NamedTuple):
    """A node of a cluster, as its processes know it.

    >>> node = Node.here("ray", "1f3a5c")
    >>> node.host in node.name, str(node).endswith("(1f3a5c)"), node.key == Node.here("ray", "1f3a5d").key
    (True, True, False)
    """

    engine: str
    id: str
    host: str
    boot: str

    @classmethod
    def here(cls, engine: str, id: str) -> Node:
        """The node of this process, by the name that its engine has for it."""
        return cls(engine, id, socket.gethostname(), boot_id())

    @property
    def key(self) -> str:
        """A short text that is the same in all processes of the node, and in no other's."""
        text = "\0".join((self.boot, self.engine, self.id))
        return blake2b(text.encode(), digest_size=12).hexdigest()

    @property
    def name(self) -> str:
        """The node in short, for tables: its host, and what tells it from another one there: the first digits of its
        id, or of a hash where the id is a sentence of its own, as Dask's is.
        """
        short = self.id[:12] if self.id.isalnum() else blake2b(self.id.encode(), digest_size=4).hexdigest()
        return f"{self.engine}-{self.host}-{short}"

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"
