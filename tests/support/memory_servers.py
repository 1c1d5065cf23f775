"""What runs in the workers of a cluster: an actor that keeps tensors, and a task that makes one."""

import os
import threading
from typing import Any

import ray

import tensormem as tm
from tensormem import errors
from tensormem.distributed import Declaration, WorkerStack, installed
from tensormem.distributed import ray as tm_ray


def here() -> WorkerStack:
    stack = installed()
    assert stack is not None
    return stack


class Server:
    """An actor that keeps tensors."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.cache: Any = None

    def where(self) -> tuple[int, str]:
        return os.getpid(), ray.get_runtime_context().get_node_id()

    def take(self, nbytes: int) -> int:
        self.kept.append(tm.empty(nbytes, "uint8"))
        return here().stats().used

    def hold(self, tensor: tm.Tensor) -> tuple[int, bool]:
        self.kept.append(tensor)
        return tensor.nbytes, tensor.readonly

    def drop(self) -> None:
        self.kept.clear()

    def fill_cache(self, count: int, nbytes: int) -> None:
        self.cache = tm_ray.EvictableCache()
        for number in range(count):
            self.cache[number] = tm.full((nbytes,), number, "uint8")

    def fill_with_pairs(self, count: int, nbytes: int) -> None:
        """Keys and values of attention states, a pair for each conversation; and one thing that cannot be put away."""
        self.cache = tm_ray.EvictableCache()
        self.cache["stays"] = threading.Lock()
        for number in range(count):
            half = nbytes // 2
            self.cache[number] = tm.full((half,), number, "uint8"), tm.full((half,), number + 1, "uint8").as_readonly()

    def pair(self, number: int) -> tuple[int, int, bool]:
        """Its elements, the first of which is written, and whether the second may be."""
        keys, values = self.cache[number]
        memoryview(keys)[1] = 77
        return keys[0].item() + keys[1].item(), values[0].item(), not values.readonly

    def evicted(self) -> list[Any]:
        return list(self.cache.evicted_keys)

    def look(self) -> tuple[int, int, int]:
        stats = here().stats()
        return stats.used, stats.spilled, stats.evicted

    def value(self, number: int) -> tuple[int, int]:
        tensor = self.cache[number]
        return tensor[0].item(), tensor.nbytes

    def attempt(self, text: str) -> tuple[str, str]:
        try:
            tm_ray.setup(Declaration.from_json(text))
        except errors.TensormemError as error:
            return type(error).__name__, str(error)
        tm_ray.teardown()
        return "fine", ""

    def restore(self) -> bool:
        stack = here()
        ours = tm.mr.get_current_device_resource()
        tm_ray.teardown()
        after = tm.mr.get_current_device_resource()
        gone = installed() is None
        tm_ray.setup(stack.declaration)
        return gone and ours is stack.resource and isinstance(after, tm.mr.HostMemoryResource)


def allocate_in_a_task(nbytes: int) -> tuple[int, int | None]:
    tensor = tm.empty(nbytes, "uint8")
    used = here().stats().used
    del tensor
    return used, here().stats().budget
