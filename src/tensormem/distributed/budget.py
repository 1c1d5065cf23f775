"""Owns: the one budget of a node: who comes first makes the ledger, the others are handed it by a member.

Must not know: engines, resources.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tensormem import errors
from tensormem._core import pause
from tensormem.distributed.cluster_node import Node
from tensormem.distributed.declaration import Declaration
from tensormem.distributed.node_entry import entry
from tensormem.distributed.worker_discovery import Invitation, Member, Presence, beacons, join, members
from tensormem.errors import DistributedError, SetUpConflict
from tensormem.pools import Participant, SharedBudget
from tensormem.units import format_size

__all__ = ["NodeBudget", "node_participants"]

_JOIN_SECONDS = 10.0  # a member answers in milliseconds, unless it is stopped or keeps the interpreter to itself
_FIRST_SECONDS = 0.5  # before the next one is asked
_BREATH = 0.002
_UNKNOWN_USER = 65534  # what the kernel says of users that a user namespace has no number for


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
        on_idle: Callable[[int], object] | None = None,
    ) -> None:
        self.node = node
        self.shared: SharedBudget | None = None
        self._limit = declaration.budget_bytes or 0
        self._terms = {
            "name": _short(worker),
            "guaranteed": declaration.guaranteed_bytes,
            "maximum": declaration.limit_bytes,
            "priority": declaration.priority,
            "on_pressure": on_pressure,
            "on_idle": on_idle,
            "patience": declaration.patience,
            "job": declaration.job,
            "job_limit": declaration.job_budget_bytes,
        }
        with entry(node.key):
            # Of processes that do not share a directory, and so no entry, two may be first: one gives way.
            while not self._enter(answer, _invited(node, self._limit)):
                self.close()

    def _enter(self, answer: Callable[[], dict[str, Any]], invitation: Invitation | None) -> bool:
        try:
            if self._limit:
                self.shared = self._joined(invitation)
            fd = -1 if self.shared is None else self.shared.fd
            self._presence = Presence(self.node.key, fd, self._limit, answer)
        except BaseException:
            if self.shared is not None:
                self.shared.close()
            raise
        finally:
            if invitation is not None and invitation.fd >= 0:
                os.close(invitation.fd)
        return not (invitation is None and _is_second(self.node, self._presence.member)) and self._presence.settle()

    def _joined(self, invitation: Invitation | None) -> SharedBudget:
        if invitation is None:
            return SharedBudget.create(self._limit, **self._terms)  # type: ignore[arg-type]
        try:
            return SharedBudget.attach(invitation.fd, **self._terms)  # type: ignore[arg-type]
        except errors.InvalidArgument as refused:
            raise SetUpConflict(f"{refused.what} (node {self.node}, job {self._terms['job']!r})") from refused
        except errors.OutOfPhysicalMemory as full:
            raise SetUpConflict(
                f"node {self.node} has {format_size(full.available)} left to guarantee, and this worker was declared "
                f"{format_size(full.requested)}"
            ) from full

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


def _invited(node: Node, limit: int) -> Invitation | None:
    """The invitation of a member, if there is one; `SetUpConflict` if the node has another budget."""
    present = members(node.key)
    for member in present:
        if member.limit != limit:
            raise _conflict(node, limit, _first_answer([member]))
    invitation = _first_answer(present or beacons(node.key))
    if invitation is not None and invitation.limit != limit:
        raise _conflict(node, limit, invitation)
    if invitation is None and any(member in members(node.key) for member in present):
        raise DistributedError(f"the budget of node {node} cannot be joined: no process of it answered")
    return invitation


def _conflict(node: Node, limit: int, first: Invitation | None) -> SetUpConflict:
    ours = format_size(limit) if limit else "none"
    if first is None:
        return SetUpConflict(f"another process declared another budget for node {node} than this one, {ours}")
    if first.fd >= 0:
        os.close(first.fd)
    theirs = format_size(first.limit) if first.limit else "no budget"
    return SetUpConflict(
        f"process {first.pid} declared {theirs} for node {node}, and this one {ours}; a job that is to have less than "
        "its node declares a job_budget within the same budget"
    )


def _first_answer(present: list[Member]) -> Invitation | None:
    """Of whoever answers first: a process may be stopped, or about to go."""
    end = time.monotonic() + _JOIN_SECONDS
    waiting, patience = list(present), _FIRST_SECONDS
    while waiting and time.monotonic() < end:
        for member in list(waiting):
            try:
                found = join(member, min(patience, max(end - time.monotonic(), 0.0)))
                if found.settled:
                    return found
                pause(_BREATH)
            except errors.TimedOut:
                continue
            except errors.ChannelRefused as refused:
                waiting.remove(member)
                if refused.uid == _UNKNOWN_USER:
                    raise DistributedError(
                        "a process of this node runs as a user that this user namespace has no number for, so the "
                        "two cannot share a budget: map the same user in both"
                    ) from refused
            except (errors.SharingError, errors.DriverError):
                waiting.remove(member)  # it has just gone
        patience *= 2
    return None


def _is_second(node: Node, ours: Member) -> bool:
    """Whether another made a ledger at the same time, and stays."""
    known = {member.token for member in members(node.key)}
    second = False
    for rival in beacons(node.key):
        if rival.token not in known:
            with suppress(errors.SharingError, errors.DriverError):
                found = join(rival, _FIRST_SECONDS, challenger=ours.token)
                if found.fd >= 0:
                    os.close(found.fd)
                second = second or found.settled or rival.token < ours.token
    return second


def node_participants(node: Node) -> list[Participant]:
    """Everybody who takes part in the budget of a node, with what they use; [] when there is no budget."""
    invitation = _first_answer(members(node.key) or beacons(node.key))
    if invitation is None or invitation.fd < 0:
        return []
    try:
        with suppress(errors.InvalidArgument):
            return SharedBudget.look(invitation.fd)
        return []
    finally:
        os.close(invitation.fd)


def _short(name: str) -> str:
    """A ledger keeps 64 bytes of a name."""
    return name.encode()[:64].decode("utf-8", "ignore")
