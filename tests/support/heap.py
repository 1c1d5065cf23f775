"""Owns: memory for `CallbackMemoryResource` that knows what is out, and can be told to misbehave."""

import ctypes
from collections.abc import Callable

from tensormem import mr
from tensormem.streams import Stream


class Heap:
    """Buffers of this process by address. `before_take` and `before_give_back` run first and may raise."""

    def __init__(self) -> None:
        self.out: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.before_take: Callable[[int], object] = lambda nbytes: None
        self.before_give_back: Callable[[int], object] = lambda address: None

    def take(self, nbytes: int, stream: Stream) -> int:
        self.before_take(nbytes)
        if nbytes > 1 << 32:
            raise MemoryError("more than a test should ask for")
        buffer = ctypes.create_string_buffer(nbytes)
        self.out[ctypes.addressof(buffer)] = buffer
        return ctypes.addressof(buffer)

    def give_back(self, address: int, nbytes: int, stream: Stream) -> None:
        self.before_give_back(address)
        assert len(self.out.pop(address)) == nbytes

    def resource(self) -> mr.CallbackMemoryResource:
        return mr.CallbackMemoryResource(self.take, self.give_back, alignment=1)


def raising(error: BaseException) -> Callable[[object], object]:
    """A function that raises `error`, whatever it is given."""

    def fail(argument: object) -> object:
        raise error

    return fail
