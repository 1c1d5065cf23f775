"""Owns: what other processes do with tensors they are given. Here, because a spawned process imports it by name."""

import os
from multiprocessing.connection import Connection
from typing import Any

import tensormem as tm
from support.neighbours import received


def facts(tensor: tm.Tensor) -> tuple[Any, ...]:
    return str(tensor.memory), tensor.shape, tensor.strides, str(tensor.dtype), tensor.readonly, tensor.tolist()


def answer(tensor: tm.Tensor, connection: Connection) -> None:
    """Tells what it got, and writes into it if it may."""
    connection.send(facts(tensor))
    if not tensor.readonly:
        tensor.fill_(42)
    connection.send("written")


def echo(connection: Connection) -> None:
    """Tells what arrives until None does; each goes back as well."""
    while (arrived := received(connection)) is not None:
        connection.send(facts(arrived))
        connection.send(arrived)
        assert received(connection) == "got it"


def doubled(tensor: tm.Tensor) -> tm.Tensor:
    """A new shared tensor with twice the values."""
    made = tm.empty(tensor.shape, tensor.dtype, memory="shm")
    made.numpy()[...] = 2 * tensor.numpy()
    return made


def hold(connection: Connection) -> None:
    """Holds what arrives, mapped, until it is killed."""
    tensor = received(connection)
    with tensor.map("r" if tensor.readonly else "rw"):
        connection.send(os.getpid())
        received(connection)


def churn(connection: Connection) -> None:
    """Makes, shares, attaches and drops without a pause until it is killed."""
    kept = [tm.full(1000, 1, "uint8", memory="shm")]
    connection.send("running")
    while True:
        kept.append(tm.full(100_000, 2, "uint8", memory="shm"))
        fd = kept[-1].clone_fd()
        again = tm.from_fd(fd, readonly=True)
        os.close(fd)
        assert again[-1].item() == 2
        again.close()
        if len(kept) > 4:
            kept.pop(0).close()
