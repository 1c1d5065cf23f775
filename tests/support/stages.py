"""Owns: actors that make tensors, share them, and look at those of others."""

import gc
import os
import signal
from typing import Any

from support.clusters import FIRST, SECOND, memory_descriptors  # before ray, which it sets up

import ray  # isort: skip

import tensormem as tm
from tensormem.distributed.ray import register_transport, share, tensor_of, transport_counts

__all__ = ["FIRST", "SECOND", "Stage", "get", "start"]

register_transport()


class Deadly:
    """Kills a process when it arrives there."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __reduce__(self) -> Any:
        return _arrived, (self.pid,)


def _arrived(pid: int) -> Deadly:
    if os.getpid() == pid:
        os.kill(pid, signal.SIGKILL)
    return Deadly(pid)


class Stage:
    """An actor that makes tensors, and looks at those of others."""

    def __init__(self) -> None:
        self.kept: tm.Tensor | None = None

    def make(self, value: int, nbytes: int = 2 << 20, memory: str | None = None) -> tm.Tensor:
        return tm.full((nbytes // 4,), value, "int32", memory=memory)

    @ray.method(tensor_transport="tensormem")  # type: ignore[untyped-decorator]
    def shared(self, value: int, nbytes: int = 2 << 20, memory: str = "shm", readonly: bool = False) -> Any:
        return {"frame": share(self.make(value, nbytes, memory), readonly=readonly), "number": value}

    @ray.method(tensor_transport="tensormem")  # type: ignore[untyped-decorator]
    def deadly(self, pid: int) -> Any:
        return [share(self.make(1, memory="shm")), Deadly(pid)]

    def look(self, message: Any) -> dict[str, Any]:
        tensor = tensor_of(message if isinstance(message, tm.Tensor) else message["frame"])
        facts = {"value": tensor[-1].item(), "memory": str(tensor.memory), "readonly": tensor.readonly}
        return {**facts, **transport_counts()}

    def write(self, message: Any, value: int) -> None:
        message["frame"].fill_(value)

    def keep(self, message: Any) -> None:
        self.kept = message["frame"]

    def kept_value(self) -> int:
        assert self.kept is not None
        value: int = self.kept[0].item()
        return value

    def drop(self) -> None:
        self.kept = None

    def pid(self) -> int:
        return os.getpid()

    def held(self) -> int:
        gc.collect()
        return len(memory_descriptors(os.getpid()))


def start(node: dict[str, float]) -> Any:
    """A new stage on a node."""
    return ray.remote(num_cpus=0, max_restarts=0)(Stage).options(resources=node).remote()


def get(reference: Any) -> Any:
    """What Ray gives, or an error when that takes too long."""
    return ray.get(reference, timeout=90)
