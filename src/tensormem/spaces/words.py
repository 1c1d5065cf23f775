"""Owns: the one table of words for where memory is and what computes, and how it is read: from text, from our own
values, and from the device objects of other libraries.

Everything that takes a "where" reads it here. Must not know: whether this machine has it; the drivers do.
"""

from __future__ import annotations

import sys

from tensormem.errors import InvalidSpace
from tensormem.spaces.kinds import GpuVendor, SpaceKind
from tensormem.spaces.place import Place, checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, Protocol, TypeAlias

    from tensormem._core import Driver

    class TypedDevice(Protocol):
        """A device as torch has it: `torch.device("cuda", 1)`."""

        @property
        def type(self) -> str: ...
        @property
        def index(self) -> int | None: ...

    class PlatformDevice(Protocol):
        """A device as JAX has it: `jax.devices()[0]`."""

        @property
        def platform(self) -> str: ...
        @property
        def id(self) -> int: ...

    SpaceLike: TypeAlias = "str | Place | Driver | TypedDevice | PlatformDevice | Said"

__all__ = ["Said", "read"]

# What each word means, and whether a number may follow it: never, only 0, or any.
_NEVER, _ONLY_ZERO, _ANY = range(3)
WORDS: dict[str, tuple[SpaceKind, str | None, int]] = {
    "main": (SpaceKind.MAIN, None, _NEVER),
    "cpu": (SpaceKind.MAIN, None, _ANY),
    "host": (SpaceKind.MAIN, None, _ONLY_ZERO),
    "pinned": (SpaceKind.PINNED, None, _NEVER),
    "managed": (SpaceKind.MANAGED, None, _NEVER),
    "gpu": (SpaceKind.GPU, None, _ANY),
    "cuda": (SpaceKind.GPU, GpuVendor.CUDA.value, _ANY),
    "rocm": (SpaceKind.GPU, GpuVendor.ROCM.value, _ANY),
    "hip": (SpaceKind.GPU, GpuVendor.ROCM.value, _ANY),
}
_DEVICE_TYPES = ("device", "Device")


class Said:
    """What was understood: a kind of space, whose GPU it is if that was said, and the number of the device.

    >>> read("cuda:1"), read("cpu").kind is SpaceKind.MAIN
    (Said('cuda:1'), True)
    """

    __slots__ = ("kind", "number", "vendor")
    kind: SpaceKind
    vendor: str | None
    number: int

    def __init__(self, kind: SpaceKind, vendor: str | None = None, number: int = 0) -> None:
        for slot, value in (("kind", kind), ("vendor", vendor), ("number", number)):
            object.__setattr__(self, slot, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return self._facts() == other._facts() if isinstance(other, Said) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._facts())

    def __str__(self) -> str:
        return f"{self.vendor or self.kind}:{self.number}" if self.kind is SpaceKind.GPU else str(self.kind)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def _facts(self) -> tuple[object, ...]:
        return self.kind, self.vendor, self.number


def read(said: object) -> Said:
    """What `said` means: text, a space, a device, a driver, or another library's device; else `InvalidSpace`.

    >>> read("gpu") == read("gpu:0"), read("hip:1") == read("rocm:1")
    (True, True)
    """
    if isinstance(said, str):
        return _read_text(said)
    if isinstance(said, Said):
        return said
    if isinstance(said, Place):
        kind, vendor, _ = WORDS[str(said.kind)]
        return Said(kind, vendor, said.device_id)
    return _read_driver(said) or _read_foreign(said)


def _read_text(text: str) -> Said:
    word, colon, digits = text.partition(":")
    known = WORDS.get(word)
    if known is None:
        raise InvalidSpace(text, what=f"{word!r:.40} is not one of {', '.join(WORDS)}")
    kind, vendor, numbers = known
    if not colon:
        return Said(kind, vendor)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and str(int(digits)) == digits):
        # Ids have one spelling: no signs, spaces or leading zeros.
        raise InvalidSpace(text, what="it is not a kind and a number as in gpu:0")
    if numbers == _NEVER:
        raise InvalidSpace(text, what=f"{word} has no number")
    number = checked_id(word, int(digits))
    if numbers == _ONLY_ZERO and number:
        raise InvalidSpace(text, what=f"the only {word} is {word}:0")
    return Said(kind, vendor, number)


def _read_driver(said: object) -> Said | None:
    from tensormem._core import Driver  # whoever has one has loaded it

    if not isinstance(said, Driver):
        return None
    # A driver that another package brought serves devices of its own: no vendor's word, but still a device's memory.
    kind, vendor, _ = WORDS.get(said.name, (SpaceKind.GPU, said.name, _ANY))
    return Said(kind, vendor, said.device)


def _read_foreign(said: object) -> Said:
    """Another library's device. Objects that merely print like one are refused: a name is not a promise."""
    try:
        text = _text_of_device(said)
    except Exception:  # whatever a stranger's attribute raises, it has not said where
        text = None
    if text is None:
        raise InvalidSpace(_shown(said), what=f"{type(said).__name__} is neither text nor a device")
    word, _, _ = text.partition(":")
    # All CPUs of other libraries have the same main memory, whatever their number.
    found = _read_text(word if word == "cpu" else text)
    # PyTorch for ROCm calls its devices cuda.
    if found.vendor == GpuVendor.CUDA and type(said).__module__ == "torch" and _torch_is_rocm():
        return Said(found.kind, GpuVendor.ROCM.value, found.number)
    return found


def _text_of_device(said: object) -> str | None:
    kind, index = getattr(said, "type", None), getattr(said, "index", None)
    if isinstance(kind, str) and _is_number(index, none=True):
        text = kind if index is None else f"{kind}:{index}"
        return text if str(said) == text else None
    platform, number = getattr(said, "platform", None), getattr(said, "id", None)
    if isinstance(platform, str) and _is_number(number):
        # In a job of several processes JAX numbers devices over all of them; memory is asked for by the local number.
        local = getattr(said, "local_hardware_id", None)
        return f"{platform}:{local if _is_number(local) else number}"
    return str(said) if type(said).__name__ in _DEVICE_TYPES else None


def _is_number(value: object, *, none: bool = False) -> bool:
    return (none and value is None) or (isinstance(value, int) and not isinstance(value, bool))


def _torch_is_rocm() -> bool:
    return getattr(getattr(sys.modules.get("torch"), "version", None), "hip", None) is not None


def _shown(said: object) -> object:
    """The value itself for the error, unless it cannot be shown."""
    try:
        repr(said)
    except Exception:
        return object.__repr__(said)
    return said
