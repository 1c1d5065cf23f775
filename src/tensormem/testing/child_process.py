"""Owns: asking a conformance suite's questions in another process: a forked child of this one, or a new interpreter
that ends with everything still open.

Must not know: what is asked.
"""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tensormem import errors

__all__ = ["end_of_process", "forked_child"]

_DONE, _TOLD, _FAILED = 0, 3, 4
_PATIENCE = 120.0
_SCRIPT = """
import importlib.util, sys
sys.path[:] = {path!r}
spec = importlib.util.spec_from_file_location({module!r}, {file!r})
module = importlib.util.module_from_spec(spec)
sys.modules[{module!r}] = module
spec.loader.exec_module(module)
kept = getattr(module.{suite}(), {method!r})()
"""


def forked_child(call: Callable[[], object]) -> str:
    """Run `call` in a forked child; "done" or "told", when an error of ours said what cannot be. Anything else fails.

    >>> forked_child(lambda: None)
    'done'
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = _FAILED
        try:
            call()
            code = _DONE
        except errors.TensormemError:
            code = _TOLD
        except BaseException as error:
            os.write(2, f"in a forked child: {error!r}\n".encode())
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    assert code in (_DONE, _TOLD), f"the forked child ended with {code}"
    return "done" if code == _DONE else "told"


def end_of_process(suite: object, method: str) -> None:
    """Let a new interpreter keep what a method of the suite makes until it ends: it ends well, and says nothing.

    A suite that another process cannot import (a class inside a function) is skipped by name.
    """
    kind = type(suite)
    if "<locals>" in kind.__qualname__:
        pytest.skip(f"{kind.__qualname__} is inside a function, and a new process cannot import it")
    script = _SCRIPT.format(
        path=sys.path, module=kind.__module__, file=inspect.getfile(kind), suite=kind.__qualname__, method=method
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=_PATIENCE)
    assert (ended.returncode, ended.stderr) == (0, ""), f"the process ended with {ended.returncode}: {ended.stderr}"
