"""Owns: the one budget of a node: who comes first makes the ledger, the others join it through a member's process.

Must not know: engines, resources.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tensormem.distributed.cluster_node import Node
from tensormem.distributed.declaration import Declaration
from tensormem.distributed.node_entry import entry
from tensormem.distributed.worker_discovery import Member, Presence, members
from tensormem.errors import DistributedError, DriverError, InvalidArgument, SetUpConflict
from tensormem.pools import Participant, SharedBudget
from tensormem.units import format_size

__all__ = ["NodeBudget", "node_participants"]


class NodeBudget:
    """This process's part in the budget of its node: a `SharedBudget` (None when none was declared), and the presence
    by which others find it.

    >>> from tensormem.distributed import Declaration, Node
    >>> node = Node.here("docs", "one")
    >>> with NodeBudget(node, Declaration(budget="64MiB"), "first", dict) as here:
    ...     here.shared.limit, [each.name for each in node_participants(node)]
    (67108864, ['first'])
    """

    def __init__(
        self,
        node: Node,
        declaration: Declaration,
        worker: str,
        answer: Callable[[], dict[str, Any]],
        on_pressure: Callable[[int], object] | None = None,
    ) -> None:
        self.node = node
        self.shared: SharedBudget | None = None
        limit = declaration.budget_bytes or 0
        terms = {
            "name": _short(worker),
            "guaranteed": declaration.guaranteed_bytes,
            "maximum": declaration.limit_bytes,
            "priority": declaration.priority,
            "on_pressure": on_pressure,
            "patience": declaration.patience,
        }
        with entry(node.key):
            present = members(node.key)
            _check_same_limit(node, limit, present)
            if limit:
                self.shared = _join(present, terms) or SharedBudget.create(limit, **terms)  # type: ignore[arg-type]
            fd = -1 if self.shared is None else self.shared.fd
            try:
                self._presence = Presence(node.key, fd, limit, answer)
            except BaseException as error:
                if self.shared is not None:
                    self.shared.close()
                if isinstance(error, DriverError) and error.code == errno.EADDRINUSE:
                    raise SetUpConflict(f"this process is a member of node {node} already") from error
                raise

    def close(self) -> None:
        """Leave the node. `TenantInUse` while something of the budget is used."""
        if self.shared is not None:
            self.shared.close()
        self._presence.close()

    def abandon(self) -> None:
        """Leave the node; what is in use stays counted until it goes, or the process does."""
        self._presence.close()
        self.shared = None

    def __enter__(self) -> NodeBudget:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _check_same_limit(node: Node, limit: int, present: list[Member]) -> None:
    for member in present:
        if member.limit != limit:
            theirs = format_size(member.limit) if member.limit else "no budget"
            ours = format_size(limit) if limit else "none"
            raise SetUpConflict(f"process {member.pid} declared {theirs} for node {node}, and this one {ours}")


def _join(present: list[Member], terms: dict[str, Any]) -> SharedBudget | None:
    reason = "its processes cannot be looked into"
    for member in present:
        try:
            # As good as being handed it: the kernel lets processes of one user open one another's files.
            fd = os.open(f"/proc/{member.pid}/fd/{member.fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # it has just gone
        try:
            return SharedBudget.attach(fd, **terms)
        except InvalidArgument as error:
            reason = error.what  # it is full, or the member has just gone and the number means another file
        finally:
            os.close(fd)
    if any(_lives(member) for member in present):
        raise DistributedError(f"the budget of this node cannot be joined: {reason}")
    return None


def _lives(member: Member) -> bool:
    return member in members(member.node)


def node_participants(node: Node) -> list[Participant]:
    """Everybody who takes part in the budget of a node, with what they use; [] when there is no budget."""
    for member in members(node.key):
        with suppress(OSError, InvalidArgument):
            fd = os.open(f"/proc/{member.pid}/fd/{member.fd}", os.O_RDWR | os.O_CLOEXEC)
            try:
                with SharedBudget.attach(fd, name="looking", maximum=0) as seen:
                    return [each for each in seen.participants() if each.name != "looking"]
            finally:
                os.close(fd)
    return []


def _short(name: str) -> str:
    """A ledger keeps 64 bytes of a name."""
    return name.encode()[:64].decode("utf-8", "ignore")
