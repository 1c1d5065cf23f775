"""Owns: names that are loaded when they are first used, and their peace with `fork`.

The child of a fork has one thread: a module that another thread was importing at that moment would never be finished
there, and whoever needs it would wait for ever. So a fork waits until nobody imports a module of this package, and a
name that is needed meanwhile waits for the fork. Must not know: which names there are.
"""

import os
import sys
import time
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_PACKAGE = __name__.partition(".")[0]
_PAUSE = 0.0005
# A fork waits so long for imports, and an import for a fork: each may hold a lock that the other waits for.
_MOST_FOR_IMPORTS = 30.0
_MOST_FOR_FORK = 1.0

_loading: dict[int, int] = {}  # the threads that load a name, and how many they are in the middle of
_forking = False


def load_name(package: str, name: str, homes: "Mapping[str, str]") -> object:
    """The value of `package.name`: of the module that `homes` says, or the module of that name. It is kept there."""
    me = get_ident()
    home = f"{package}.{homes.get(name, name)}"
    _enter(me)
    try:
        __import__(home)
    finally:
        _leave(me)
    module = sys.modules[home]
    value: object = getattr(module, name) if name in homes else module
    setattr(sys.modules[package], name, value)
    return value


def _enter(me: int) -> None:
    _loading[me] = _loading.get(me, 0) + 1
    end = 0.0
    while _forking and _loading[me] == 1 and (end == 0 or time.monotonic() < end):
        end = end or time.monotonic() + _MOST_FOR_FORK
        _leave(me)
        time.sleep(_PAUSE)
        _loading[me] = 1


def _leave(me: int) -> None:
    if _loading[me] > 1:
        _loading[me] -= 1
    else:
        del _loading[me]


# --- Forks ---


def _others_import(me: int) -> bool:
    """Whether another thread loads a name, or imports a module of this package as every module is imported."""
    if any(thread != me for thread in list(_loading)):
        return True
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    for name, found in list(locks.items()):
        if name.partition(".")[0] == _PACKAGE and getattr(found(), "owner", None) not in (None, me):
            return True
    return False


def _before_fork() -> None:
    global _forking
    me, end = get_ident(), time.monotonic() + _MOST_FOR_IMPORTS
    while True:
        _forking = True
        if not _others_import(me) or time.monotonic() > end:
            return
        _forking = False
        time.sleep(_PAUSE)


def _after_fork_in_parent() -> None:
    global _forking
    _forking = False


def _after_fork_in_child() -> None:
    global _forking
    _forking = False
    me = get_ident()
    for thread in list(_loading):
        if thread != me:
            del _loading[thread]


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
