"""Owns: everything that we use of Dask beyond its public interface, in one place: how a worker runs a task, gives data
away and keeps its results. `tests/distributed/test_engine_internals.py` says what of Dask it needs.

Must not know: what is done with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed import Client, Worker
from distributed.worker_state_machine import ExecuteFailureEvent

__all__ = [
    "add_plugin",
    "add_to_heartbeats",
    "event_loop",
    "evict_oldest",
    "execute_failure",
    "get_data_handler",
    "has_spilled",
    "inputs_of",
    "put_aside",
    "remove_from_heartbeats",
    "restore_execute",
    "run_everywhere",
    "set_get_data_handler",
    "spilled_bytes",
    "swap_execute",
]


# --- Of a client ---


def run_everywhere(client: Client, function: Callable[..., Any], timeout: float) -> dict[str, Any]:
    """What a function returns on each worker, or the exception of one that did not answer in time."""
    answers: dict[str, Any] = client.sync(client._run, function, on_error="return", callback_timeout=timeout)
    return answers


# --- Of a worker: what it does ---


def event_loop(worker: Worker) -> asyncio.AbstractEventLoop:
    """The loop that alone may touch a worker's data."""
    loop: asyncio.AbstractEventLoop = worker.loop.asyncio_loop
    return loop


async def add_plugin(worker: Worker, plugin: Any) -> None:
    """Give a plugin to one worker, before it has its first task."""
    await worker.plugin_add(plugin, name=plugin.name)


def get_data_handler(worker: Worker) -> Any:
    """What gives data to other workers: called with (comm, keys, who, serializers)."""
    return worker.handlers["get_data"]


def set_get_data_handler(worker: Worker, handler: Any) -> None:
    """Let `handler` do it."""
    worker.handlers["get_data"] = handler


def swap_execute(worker: Worker, execute: Any) -> Any:
    """Let `execute(key, *, stimulus_id)` run tasks; returns what did before."""
    before, worker.execute = worker.execute, execute
    return before


def restore_execute(worker: Worker, ours: Any, before: Any) -> None:
    """Let tasks run as before, unless somebody else stands before `ours` by now."""
    if worker.execute == ours:
        worker.execute = before


def execute_failure(worker: Worker, key: Any, refusal: Exception, stimulus_id: str) -> Any:
    """What `execute` returns for a task that failed."""
    run_id = worker.state.tasks[key].run_id
    return ExecuteFailureEvent.from_exception(refusal, key=key, run_id=run_id, stimulus_id=stimulus_id)


def add_to_heartbeats(worker: Worker, name: str, answer: Callable[[], Any]) -> None:
    """Send what `answer` returns with every heartbeat."""
    worker.metrics[name] = lambda _: answer()


def remove_from_heartbeats(worker: Worker, name: str) -> None:
    """And no longer."""
    worker.metrics.pop(name, None)


# --- Of a worker: what it keeps ---


def inputs_of(worker: Worker, key: Any) -> dict[Any, Any]:
    """The values that a task needs and the worker has; those on disk come back."""
    names = [each.key for each in worker.state.tasks[key].dependencies]
    return {name: worker.data[name] for name in names if name in worker.data}


def has_spilled(worker: Worker) -> bool:
    """Whether any value lies on disk."""
    return bool(getattr(worker.data, "slow", None))


def evict_oldest(worker: Worker) -> bool:
    """Move the value that was used least recently to disk; False if there is none, or it cannot go."""
    data = worker.data
    # Without a buffer spilling is switched off. Less than nothing: the disk is full, or it cannot be pickled.
    return bool(hasattr(data, "evict") and data.fast and data.evict() >= 0)


def put_aside(worker: Worker, names: list[Any]) -> None:
    """Move these values to disk, where there is one and they can go."""
    fast = getattr(worker.data, "fast", {})
    for name in names:
        if name in fast and hasattr(fast, "evict"):
            with suppress(Exception):  # the disk is full, or it cannot be pickled: it stays
                fast.evict(name)


def spilled_bytes(worker: Worker) -> int:
    """What lies on disk now."""
    total = getattr(worker.data, "spilled_total", None)
    return 0 if total is None else int(total.memory)
