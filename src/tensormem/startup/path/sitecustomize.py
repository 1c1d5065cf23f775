"""Owns: the first moment of a Python program under `tensormem record`; then it is gone, and the program's own
`sitecustomize`, if there is one, has its turn. Must not know: anything but where tensormem is. It runs in whatever
Python the program has, so it is written for all of them, and nothing that fails here may stop the program.
"""

import os
import sys
from importlib import import_module

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))


class _Finder:
    """Finds tensormem, and nothing else, where the recorder has it: the program may have another environment."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [_PACKAGES]) if name == "tensormem" else None


def _is_built_for_this_python() -> bool:
    from importlib.machinery import EXTENSION_SUFFIXES

    core = os.path.join(_PACKAGES, "tensormem", "_core")
    return any(os.path.exists(os.path.join(core, "trace" + suffix)) for suffix in EXTENSION_SUFFIXES)


def _watch() -> None:
    if not os.environ.get("TENSORMEM_TRACE"):
        return
    if _is_built_for_this_python():
        sys.meta_path.append(_Finder())  # type: ignore[arg-type]
    try:
        from tensormem.startup import watch_program
    except ImportError:
        return  # what the preloaded library sees is recorded, without Python calls
    watch_program()


def _go_on() -> None:
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
    this = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this


if __name__ == "sitecustomize":
    try:
        _watch()
    except Exception as error:
        sys.stderr.write("tensormem: NumPy and Python calls are not recorded: %s\n" % error)  # noqa: UP031
    _go_on()
