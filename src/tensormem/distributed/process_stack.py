"""Owns: the one stack of this process: installed once and made current, found by who needs it, and taken down.

Must not know: engines; they bring the node and the names.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from tensormem import _core
from tensormem.distributed.cluster_node import Node
from tensormem.distributed.declaration import Declaration
from tensormem.distributed.worker_stack import WorkerStack
from tensormem.errors import SetUpConflict
from tensormem.mr import DeviceMemoryResource, get_per_device_resource, set_current_device_resource

__all__ = ["install", "installed", "trace_name", "uninstall"]

_lock = threading.RLock()
_installed: WorkerStack | None = None
_previous: DeviceMemoryResource | None = None
_recording = False
_pid = 0


def installed() -> WorkerStack | None:
    """The stack of this process, if it was set up."""
    return None if _installed is None or _pid != os.getpid() else _installed


def install(declaration: Declaration, node: Node, worker: str) -> WorkerStack:
    """Give this process the declared stack, and make it current. The same declaration again gives the same stack;
    another one is `SetUpConflict`.
    """
    global _installed, _previous, _recording, _pid
    with _lock:
        present = installed()
        if present is not None:
            if (present.declaration, present.node) != (declaration, node):
                raise SetUpConflict(f"this process was set up as {present.declaration}, on {present.node}")
            present.users += 1
            return present
        stack = WorkerStack(declaration, node, worker)
        try:
            _recording = _record(declaration, worker)
        except BaseException:
            stack.close()
            raise
        top = stack.resource
        _previous = get_per_device_resource(top.device_ordinal, top.driver)
        set_current_device_resource(top)
        _installed, _pid = stack, os.getpid()
        return stack


def uninstall(*, force: bool = False) -> None:
    """Take down the stack of this process: what was current before is so again. Without one, nothing happens. What was
    set up more than once goes with the last call. `TenantInUse` while blocks are out, unless by `force`.
    """
    global _installed, _previous, _recording
    with _lock:
        stack = installed()
        if stack is None:
            return
        if stack.users > 1 and not force:
            stack.users -= 1
            return
        stack.close(force=force)
        top = stack.resource
        if _previous is not None and get_per_device_resource(top.device_ordinal, top.driver) is top:
            set_current_device_resource(_previous)
        if _recording and _core.is_recording():
            _core.stop_recording()
        _installed, _previous, _recording = None, None, False


def _record(declaration: Declaration, worker: str) -> bool:
    if declaration.trace is None or _core.is_recording():
        return False
    folder = Path(declaration.trace)
    folder.mkdir(parents=True, exist_ok=True)
    _core.start_recording(str(folder / trace_name(worker, os.getpid())), overwrite=True)
    return True


def trace_name(worker: str, pid: int) -> str:
    """What the recording of a worker is called.

    >>> trace_name("dask-tcp://127.0.0.1:4000", 77)
    'dask-tcp-127.0.0.1-4000-77.tmt'
    """
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', worker).replace('--', '-')}-{pid}.tmt"
