"""Owns: the attack by messages: what a hostile peer says on a channel, beside descriptors of its choice, and what a
hostile producer says in DLPack. A message is taken or refused by name, and every descriptor beside it is closed.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from random import Random
from typing import Any

import tensormem as tm
from attacks.damaged_files import damaged, damaged_in_place
from attacks.outcome import Leak, Outcome, Wrong
from attacks.suite import Note, Suite
from support.holdings import open_descriptors
from tensormem import errors
from tensormem._core import describe_tensor, parse_message
from tensormem.images.description import format_description

__all__ = ["SUITE"]


def _sound(draw: Random) -> bytes:
    tensor = tm.full((4, 6), 3, draw.choice(["int32", "uint8", "float64"]), memory="shm")
    view = draw.choice([tensor, tensor.T, tensor[1:, ::-2], tensor[:, :0]])
    return describe_tensor(view, draw.random() < 0.5)


def _hostile(draw: Random) -> bytes:
    sound = _sound(draw)
    if draw.random() < 0.2:
        return bytes(damaged(draw, sound))
    return damaged_in_place(draw, sound)


def _descriptor(draw: Random) -> int:
    way = draw.randrange(5)
    if way == 0:
        return os.open(os.devnull, os.O_RDWR)
    if way == 1:
        return os.memfd_create("attack")
    if way == 2:
        read, write = os.pipe()
        os.close(write)
        return read
    if way == 3:
        made = os.memfd_create("attack", os.MFD_ALLOW_SEALING)
        os.ftruncate(made, draw.choice([0, 1, 4096, 2**20]))
        return made
    return tm.full((4, 6), 3, "int32", memory="shm").clone_fd()


def _parse(draw: Random) -> None:
    data = _hostile(draw)
    facts = parse_message(data)
    if facts.offset > facts.capacity:
        raise Wrong(f"{facts} was believed")


def _send(draw: Random) -> None:
    peer, mine = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fds = [_descriptor(draw) for _ in range(draw.choice([0, 1, 1, 1, 2, 3]))]
    try:
        data = _hostile(draw) if draw.random() < 0.9 else draw.randbytes(draw.choice([1, 40, 100, 5000]))
        with peer, tm.Channel(mine) as channel:
            beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            peer.sendmsg([data], beside)
            receive = draw.choice([channel.receive, channel.receive, channel.receive_image, channel.receive_ring])
            taken: Any = receive(timeout=0)
            if isinstance(taken, tm.Tensor):
                taken.tolist()
            taken.close()
    finally:
        for fd in fds:
            os.close(fd)


def _image(draw: Random) -> None:
    tensor = tm.zeros(8 * 8 * 4, "uint8")
    sound = format_description(tm.image(8, 8, draw.choice(["rgb", "nv12", "grey16", "yuyv"])).layout)
    made = tm.Image.from_description(tensor, damaged_in_place(draw, sound))
    for plane in made.planes:
        plane.tolist()


class _Producer:
    """A tensor of NumPy with a struct that says something else."""

    def __init__(self, draw: Random) -> None:
        import numpy

        self._array = numpy.zeros((4, 5), draw.choice(["u1", "f4", "c16"]))
        self._device = draw.choice([(1, 0), (2, 0), (1, 5), (99, 0), (13, 0), (-1, -1), (2**40, 0), ("a",), None])

    def __dlpack_device__(self) -> object:
        return self._device

    def __dlpack__(self, **options: object) -> object:
        return self._array.__dlpack__()


def _dlpack(draw: Random) -> None:
    made = tm.from_dlpack(_Producer(draw))
    made.tolist()


def _pickle(draw: Random) -> None:
    """Our own reductions, with a byte wrong."""
    import pickle

    sound = pickle.dumps(tm.full((2, 3), 1, "int32"))
    data = bytearray(sound)
    at = draw.randrange(len(data))
    struct.pack_into("<B", data, at, draw.randrange(256))
    try:
        made = pickle.loads(bytes(data))
    except errors.TensormemError:
        raise
    except Exception as error:  # pickle raises anything
        raise errors.MalformedMessage(0, what=repr(error)[:60]) from None
    if isinstance(made, tm.Tensor):
        made.tolist()


_ATTACKS = {"parse": _parse, "channel": _send, "image": _image, "DLPack": _dlpack, "pickle": _pickle}
_before = 0


def _case(draw: Random, note: Note) -> Outcome:
    name = draw.choice(["parse", "channel", "channel", "channel", "image", "DLPack", "pickle"])
    note(name)
    try:
        _ATTACKS[name](draw)
    except errors.TensormemError as error:
        if isinstance(error, errors.InternalError):
            raise
        return Outcome.REFUSED
    except (TypeError, ValueError, BufferError) as error:
        if name != "DLPack":
            raise Wrong(f"{name}: {error!r:.200}") from error
        return Outcome.REFUSED
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"{name}: {error!r:.200}") from error
    return Outcome.FINE


def _begin() -> None:
    global _before
    draw = Random(1)
    for attack in _ATTACKS.values():
        for _ in range(3):
            try:
                attack(draw)
            except Exception:
                continue
    _before = open_descriptors()


def _finish() -> None:
    after = open_descriptors()
    if after > _before:
        raise Leak(f"{after - _before} descriptors")


SUITE = Suite(
    "messages",
    "What a hostile peer sends is taken or refused by name; no byte outside of its memory is read, and every "
    "descriptor that came with it is closed.",
    _case,
    share=0.1,
    batch=400,
    begin=_begin,
    finish=_finish,
)
