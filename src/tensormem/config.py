"""Owns: every `TENSORMEM_*` environment variable: its name, type, default and meaning, in one place.

Must not know: who uses a value. The environment is read once, at the first `get_config()`, so that importing tensormem
never fails because of it; a wrong value raises `InvalidConfig` there, and an unknown variable is warned about.
A new variable is one new line in `Config`.
"""

from __future__ import annotations

import os
from enum import StrEnum

from tensormem.errors import InvalidArgument, InvalidConfig
from tensormem.misspellings import nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn

_PREFIX = "TENSORMEM_"

COLUMNS = ("variable", "type", "default", "current", "meaning")
"""What the columns of `describe()` are called."""


class HugePages(StrEnum):
    """Whether the host driver asks the system for 2 MiB pages: `auto` where the kernel gives them, or `never`.

    >>> HugePages("auto") == "auto"
    True
    """

    AUTO = "auto"
    NEVER = "never"


class MissingSpace(StrEnum):
    """What becomes of a tensor that arrives from a space which is not here: an `error`, or a tensor in `main` memory.

    >>> MissingSpace("main") == "main"
    True
    """

    ERROR = "error"
    MAIN = "main"


class _Variable:
    """One variable. `parse` raises ValueError for what is not `expected`."""

    __slots__ = ("default", "expected", "meaning", "parse")

    def __init__(self, default: object, parse: Callable[[str], object], expected: str, meaning: str) -> None:
        self.default, self.parse, self.expected, self.meaning = default, parse, expected, meaning


def _whole(default: int, low: int, high: int, meaning: str) -> Any:
    def parse(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(text)
        return number

    return _Variable(default, parse, f"a whole number from {low} to {high}", meaning)


def _choice(default: StrEnum, meaning: str) -> Any:
    return _Variable(default, type(default), "|".join(type(default)), meaning)


def _text(default: str, expected: str, meaning: str) -> Any:
    return _Variable(default, str, expected, meaning)


class Config:
    """What the environment says, checked and frozen. Field `max_streams` is the variable `TENSORMEM_MAX_STREAMS`.

    >>> Config.from_environ({"TENSORMEM_MAX_STREAMS": "64"}).max_streams
    64
    """

    huge_pages: HugePages = _choice(HugePages.AUTO, "ask the system for 2 MiB pages where the kernel gives them")
    max_streams: int = _whole(1024, 1, 1024, "how many streams one driver may have at once; each has a thread")
    simgpu: str = _text(
        "off", "off, or text such as devices=2,memory=1GiB", "use a simulated GPU like this instead of real ones"
    )
    cuda_library: str = _text(
        "off", "off, or the path of a file", "use this file as CUDA's driver, and look for no other"
    )
    hip_library: str = _text(
        "off", "off, or the path of a file", "use this file as the HIP runtime, and look for no other"
    )
    force_mem: int = _whole(0, 0, 1, "1: make every tensor of plain memory, whatever kind is asked for")
    trace: str = _text(
        "off", "off, or the path of a file, in which {pid} is the process", "record a trace into this file"
    )
    trace_stacks: int = _whole(0, 0, 1, "1: a recording that TENSORMEM_TRACE asks for has Python stacks")
    trace_malloc: str = _text(
        "off",
        "off, or a number of bytes",
        "a recording tells of blocks of the C library (if preloaded) from this size on",
    )
    trace_numpy: int = _whole(0, 0, 1, "1: a recording tells of the arrays that NumPy allocates itself")
    trace_torch: int = _whole(0, 0, 1, "1: PyTorch's own history of GPU memory is written beside the recording")
    top: int = _whole(0, 0, 1, "1: let `tensormem top` watch this process; starts a thread")
    oom_dump: str = _text(
        "off", "off, or the path of a file, in which {pid} is the process", "write a report here when memory runs out"
    )
    data: str = _text(
        "auto", "auto, or the path of a folder", "where real workloads lie; auto: beside a clone, if they are there"
    )
    missing_space: MissingSpace = _choice(
        MissingSpace.ERROR, "main: take a tensor that arrives from a space which is not here into main memory"
    )
    declaration: str = _text(
        "none", "none, or text such as budget=8GiB,limit=2GiB", "what workers of Ray and Dask are set up with"
    )
    next_setup_hook: str = _text(
        "none", "none, or the dotted name of a function", "what a Ray worker calls when it has been set up"
    )
    exit_timeout: int = _whole(10, 0, 86400, "seconds that work on streams has left when the interpreter ends")

    def __init__(self, **values: object) -> None:
        if unknown := values.keys() - _VARIABLES.keys():
            raise InvalidArgument(f"a Config has no field {', '.join(sorted(unknown))}")
        for field, variable in _VARIABLES.items():
            self.__dict__[field] = _check(field, str(values[field])) if field in values else variable.default

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Config:
        """The config that `environ` asks for; `InvalidConfig` for a wrong value, a warning for an unknown variable."""
        for name in environ:
            if name.startswith(_PREFIX) and name not in _FIELDS:
                _warn_unknown(name)
        return cls(**{field: environ[name] for name, field in _FIELDS.items() if name in environ})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Config cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Config cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, Config) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        fields = (f"{name}={value if isinstance(value, int) else str(value)!r}" for name, value in vars(self).items())
        return f"Config({', '.join(fields)})"


_VARIABLES: dict[str, _Variable] = {name: value for name, value in vars(Config).items() if isinstance(value, _Variable)}
_FIELDS = {_PREFIX + field.upper(): field for field in _VARIABLES}
_current: dict[str, Config] = {}


def get_config() -> Config:
    """The config of this process, read from the environment at the first call and the same ever after.

    >>> get_config() is get_config()
    True
    """
    # setdefault is atomic: threads that race for the first call all get the same object.
    return _current.get("config") or _current.setdefault("config", Config.from_environ(os.environ))


def describe(config: Config | None = None) -> list[tuple[str, str, str, str, str]]:
    """One row per variable with the `COLUMNS`, for `config` or that of this process: what doctor and the docs show.

    >>> describe(Config())[1][:3]
    ('TENSORMEM_MAX_STREAMS', 'a whole number from 1 to 1024', '1024')
    """
    shown = get_config() if config is None else config
    return [
        (name, variable.expected, str(variable.default), str(getattr(shown, field)), variable.meaning)
        for name, field in _FIELDS.items()
        for variable in (_VARIABLES[field],)
    ]


def _check(field: str, text: str) -> object:
    variable = _VARIABLES[field]
    try:
        return variable.parse(text.strip())
    except ValueError:
        raise InvalidConfig(_PREFIX + field.upper(), text, variable.expected) from None


def _warn_unknown(name: str) -> None:
    import warnings

    likely = nearest(name.removeprefix(_PREFIX).lower(), _VARIABLES)
    hint = f"did you mean {_PREFIX}{likely.upper()}?" if likely else f"it knows {', '.join(_FIELDS)}"
    warnings.warn(f"tensormem knows no variable {name}; {hint}", stacklevel=4)
