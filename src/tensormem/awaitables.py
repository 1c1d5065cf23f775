"""Owns: waiting for a compiled object with `await`: the wait runs in a thread, and other tasks go on.

Must not know: what is waited for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, TypeVar

    _T = TypeVar("_T")

__all__ = ["await_in_thread"]


def await_in_thread(done: bool, wait: Callable[[], object], value: _T) -> Generator[Any, None, _T]:
    """What `__await__` gives: `value`, at once if `done`, else when `wait` has returned in a thread of asyncio's.

    A task that is cancelled leaves the wait to its thread, which ends when the work does.

    >>> import asyncio
    >>> import tensormem as tm
    >>> async def main():
    ...     return (await tm.zeros(3)).tolist()
    >>> asyncio.run(main())
    [0.0, 0.0, 0.0]
    """
    if not done:
        import asyncio

        yield from asyncio.to_thread(wait).__await__()
    return value
