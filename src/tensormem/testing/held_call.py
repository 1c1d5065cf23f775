"""Owns: a call of a driver that another thread is inside of, with an address that it was given as a plain number.

Must not know: whose memory it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from tensormem import errors
from tensormem._core import Driver

__all__ = ["held_call"]

_PATIENCE = 20.0


class _Pitch:
    """Asked for when the call has the address; then the call is refused, and no memory was touched."""

    def __init__(self) -> None:
        self.inside, self.go_on = Event(), Event()

    def __index__(self) -> int:
        self.inside.set()
        self.go_on.wait(_PATIENCE)
        raise errors.InvalidArgument("the call was held, and is refused now")


@contextmanager
def held_call(driver: Driver, address: int) -> Iterator[None]:
    """Inside, another thread is in `driver.fill` of `address`; nothing is written.

    >>> import tensormem as tm
    >>> tensor = tm.zeros(64, "uint8")
    >>> with held_call(tm.drivers.host(), tensor.ptr):
    ...     tensor.close()
    Traceback (most recent call last):
    ...
    BufferError: ...
    """
    pitch = _Pitch()

    def call() -> None:
        with suppress(errors.InvalidArgument):
            driver.fill(address, 0, 1, (64, 1, 1), pitch=pitch)

    thread = Thread(target=call)
    thread.start()
    try:
        assert pitch.inside.wait(_PATIENCE), "the call never asked for its pitch"
        yield
    finally:
        pitch.go_on.set()
        thread.join()
