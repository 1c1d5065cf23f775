"""Promise: what owns something is a context manager, and what has a point to wait for can be awaited."""

import asyncio
import importlib
import inspect
from typing import Any

import pytest

import tensormem as tm
from support.public_names import CLASSES
from tensormem import gl

# Packages whose classes are for their own use.
INSIDE: tuple[str, ...] = (
    "tensormem.sockets",
    "tensormem.reports.selftest",
    "tensormem.trace.",
    "tensormem.gl.",
    "tensormem.memories.",
    "tensormem.pools.",
    "tensormem.distributed.dask.",
    "tensormem.distributed.ray.",
    "tensormem.distributed.received",
)
OTHERWISE = {
    "SimulatedGpu": "switched on and off by simulated_gpu, which is a context manager",
    "Tenant": "registered and unregistered by its pool, which is a context manager",
    "PageServer": "waits for Ctrl-C",
}


def _classes() -> dict[str, Any]:
    found = {f"{module}:{name}": getattr(importlib.import_module(module), name) for module, name in CLASSES}
    return {full: cls for full, cls in found.items() if not full.startswith(INSIDE) and cls.__name__ not in OTHERWISE}


OWNERS = [full for full, cls in _classes().items() if callable(getattr(cls, "close", None))]
WAITERS = [
    full
    for full, cls in _classes().items()
    if any(inspect.isroutine(getattr(cls, name, None)) for name in ("wait", "synchronize"))
    and not full.startswith("tensormem.rmm.")  # which has RMM's own members
]


@pytest.mark.parametrize("full", OWNERS)
def test_what_can_be_closed_is_a_context_manager(full: str) -> None:
    cls = _classes()[full]
    assert callable(getattr(cls, "__enter__", None)) and callable(getattr(cls, "__exit__", None))


@pytest.mark.parametrize("full", WAITERS)
def test_what_can_be_waited_for_can_be_awaited(full: str) -> None:
    assert callable(getattr(_classes()[full], "__await__", None))


def test_there_are_owners_and_waiters() -> None:
    names = {full.partition(":")[2] for full in OWNERS}
    assert {"Channel", "FrameRing", "Stream", "Tensor", "Storage", "VirtualMemoryPool", "WorkerStack"} <= names
    assert {full.partition(":")[2] for full in WAITERS} >= {"Event", "Storage", "Stream", "Tensor", "GlFence"}


def test_a_storage_is_awaited() -> None:
    async def main() -> None:
        storage = tm.zeros(3).storage
        assert await storage is storage

    asyncio.run(main())


@pytest.mark.usefixtures("opengl")
def test_a_fence_is_awaited() -> None:
    async def main() -> None:
        with gl.GlContext() as context:
            fence = gl.GlFence(context)
            assert await fence is fence and fence.done

    asyncio.run(main())
