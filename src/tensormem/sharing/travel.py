"""Owns: how channels and frame rings go through `multiprocessing`: their descriptors, then the same object over them.

Must not know: what they are used for.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

from tensormem.sharing.channel import Channel
from tensormem.sharing.frame_ring import FrameRing
from tensormem.sockets.descriptors import Carried, carry, duplicate, with_carried

__all__ = ["install"]


def _rebuild_ring(control: Carried, frames: Carried, readonly: bool, mode: str) -> FrameRing:
    return with_carried(lambda *found: FrameRing.attach(*found, readonly=readonly, mode=mode), control, frames)


def _reduce_ring(ring: FrameRing) -> tuple[Callable[..., FrameRing], tuple[Any, ...]]:
    return _rebuild_ring, (*carry(*ring.clone_fds()), ring.readonly, str(ring.mode))


def _rebuild_channel(descriptor: Carried, uids: frozenset[int]) -> Channel:
    return Channel(socket.socket(fileno=descriptor.detach()), uids=uids)


def _reduce_channel(channel: Channel) -> tuple[Callable[..., Channel], tuple[Any, ...]]:
    return _rebuild_channel, (*carry(duplicate(channel.fileno())), channel.uids)


def install() -> None:
    """Teach `multiprocessing` both."""
    ForkingPickler.register(FrameRing, _reduce_ring)
    ForkingPickler.register(Channel, _reduce_channel)
