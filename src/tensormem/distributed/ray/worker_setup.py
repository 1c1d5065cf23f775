"""Owns: the set-up of Ray's processes: of all workers of a job through its runtime environment, or of one by a call.

Must not know: how a stack is built.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import ray

from tensormem.distributed import process_stack
from tensormem.distributed.cluster_node import Node
from tensormem.distributed.declaration import Declaration
from tensormem.distributed.late_setup import LateSetUp
from tensormem.distributed.ray.internals import named_function
from tensormem.distributed.ray.metrics import Gauges
from tensormem.distributed.worker_stack import WorkerStack
from tensormem.errors import DistributedError, InvalidArgument, TensormemError
from tensormem.mr import set_current_device_resource

__all__ = ["install_from_environment", "memory_options", "runtime_env", "setup", "teardown"]

DECLARATION = "TENSORMEM_DECLARATION"
NO_DECLARATION = "none"  # for processes that only look: they take no part in the budget
NEXT_HOOK = "TENSORMEM_NEXT_SETUP_HOOK"
HOOK = "tensormem.distributed.ray.worker_setup.install_from_environment"

_gauges: Gauges | None = None


def runtime_env(declaration: Declaration, base: dict[str, Any] | None = None) -> dict[str, Any]:
    """A runtime environment in which every worker process, of tasks and of actors, is set up before its first one.

    Give it to `ray.init(runtime_env=...)`. `base` is what else the environment has. A set-up hook in it that is named
    as text runs afterwards; a function cannot, and has to call `setup` itself.
    """
    made = dict(base or {})
    variables = dict(made.get("env_vars", {}))
    hook = made.get("worker_process_setup_hook")
    if hook is not None and not isinstance(hook, str):
        raise InvalidArgument("there is a set-up hook that is a function already: call tensormem's setup(...) in it")
    if hook is not None:
        variables[NEXT_HOOK] = hook
    variables[DECLARATION] = declaration.to_json()
    return {**made, "env_vars": variables, "worker_process_setup_hook": HOOK}


def memory_options(declaration: Declaration) -> dict[str, int]:
    """The options of a task or an actor that tell Ray's scheduler what its worker may have: `memory`, the logical
    resource. Ray then puts no more of them on a node than its own memory allows; it does not measure it.
    """
    nbytes = declaration.limit_bytes or declaration.guaranteed_bytes
    if not nbytes:
        raise InvalidArgument("a worker without a limit and without a guarantee has no size that Ray could count")
    return {"memory": nbytes}


def setup(declaration: Declaration) -> WorkerStack:
    """Set up this process: a driver, or a worker that was not set up by `runtime_env`; once for one declaration."""
    global _gauges
    if not ray.is_initialized():
        raise DistributedError("this process is not connected to Ray: call ray.init first")
    context = ray.get_runtime_context()
    node = Node.here("ray", context.get_node_id())
    stack = process_stack.install(declaration, node, f"ray-{context.get_worker_id()[:12]}")
    if _gauges is None and declaration.metrics_seconds:
        _gauges = Gauges(stack, declaration.metrics_seconds)
    return stack


def teardown(*, force: bool = False) -> None:
    """Take down the stack of this process; what was current before is so again."""
    global _gauges
    process_stack.uninstall(force=force)
    if process_stack.installed() is None and _gauges is not None:
        _gauges.close()
        _gauges = None


def install_from_environment() -> None:
    """What Ray calls in each new worker. A worker that cannot be set up stays, and its allocations say why: an error
    here would only be seen as a crash. Each of them tries again, so it is let in when there is room.
    """
    text = os.environ.get(DECLARATION, NO_DECLARATION)
    try:
        if text != NO_DECLARATION:
            _set_up_as(text)
    except TensormemError:
        context = ray.get_runtime_context()
        node = Node.here("ray", context.get_node_id())
        where = f"worker ray-{context.get_worker_id()[:12]} (pid {os.getpid()}) on node {node}"
        set_current_device_resource(LateSetUp(partial(_set_up_as, text), where).resource)
    following = os.environ.get(NEXT_HOOK)
    if following:
        named_function(following)()


def _set_up_as(text: str) -> WorkerStack:
    return setup(Declaration.from_text(text))
