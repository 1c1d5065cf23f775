"""Owns: everything that we use of Ray beyond its public interface, in one place: its registry of tensor transports, and
who made an object that went by one. `tests/distributed/test_engine_internals.py` says what of Ray it needs.

Must not know: what is done with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray._common.utils import load_class
from ray.experimental.rdt import util

__all__ = ["call_on", "named_function", "registered_transport", "source_of", "transport_is_registered"]


def named_function(name: str) -> Callable[[], object]:
    """The function of a dotted name, as Ray finds set-up hooks."""
    function: Callable[[], object] = load_class(name)
    return function


def transport_is_registered(name: str) -> bool:
    """Whether this process knows a tensor transport."""
    return name in util.transport_manager_info


def registered_transport(name: str) -> Any:
    """The one of this process; made when it is first asked for."""
    return util.get_tensor_transport_manager(name)


def source_of(obj_id: str) -> Any:
    """The actor that made an object, where this process got the reference; None if that was the driver."""
    known = ray._private.worker.global_worker.rdt_manager.get_rdt_metadata(obj_id)
    source = None if known is None else known.src_actor
    return source if hasattr(source, "__ray_call__") else None


def call_on(actor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function on an actor, beside its own methods; returns the reference of what it returns."""
    return actor.__ray_call__.options(concurrency_group="_ray_system").remote(function, *arguments)
