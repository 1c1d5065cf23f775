"""Owns: how channels and frame rings go through `multiprocessing`: their descriptors, then the same object over them.

Must not know: what they are used for.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from multiprocessing import context, util
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any, Protocol

from tensormem.memories.descriptors import duplicate
from tensormem.sharing.channel import Channel
from tensormem.sharing.frame_ring import FrameRing

__all__ = ["install"]


class _Detachable(Protocol):
    def detach(self) -> int: ...


def _carry(descriptors: list[int]) -> list[Any]:
    """What brings the descriptors to the child. They are ours: they are closed when they have gone."""
    child = context.get_spawning_popen()
    if child is not None:
        # They are inherited when the child starts, which is later: it is the child's record that closes them.
        for fd in descriptors:
            util.Finalize(child, os.close, (fd,), exitpriority=0)
        return [DupFd(fd) for fd in descriptors]
    try:
        return [DupFd(fd) for fd in descriptors]
    finally:
        for fd in descriptors:
            os.close(fd)


def _rebuild_ring(control: _Detachable, frames: _Detachable, readonly: bool, mode: str) -> FrameRing:
    descriptors = [control.detach(), frames.detach()]
    try:
        return FrameRing.attach(descriptors[0], descriptors[1], readonly=readonly, mode=mode)
    finally:
        for fd in descriptors:
            os.close(fd)


def _reduce_ring(ring: FrameRing) -> tuple[Callable[..., FrameRing], tuple[Any, ...]]:
    return _rebuild_ring, (*_carry(ring.clone_fds()), ring.readonly, str(ring.mode))


def _rebuild_channel(descriptor: _Detachable, uids: frozenset[int]) -> Channel:
    return Channel(socket.socket(fileno=descriptor.detach()), uids=uids)


def _reduce_channel(channel: Channel) -> tuple[Callable[..., Channel], tuple[Any, ...]]:
    return _rebuild_channel, (*_carry([duplicate(channel.fileno())]), channel.uids)


def install() -> None:
    """Teach `multiprocessing` both."""
    ForkingPickler.register(FrameRing, _reduce_ring)
    ForkingPickler.register(Channel, _reduce_channel)
