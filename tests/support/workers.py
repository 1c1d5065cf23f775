"""Owns: eight threads that do the same at once; what goes wrong in one of them is raised by whoever started them."""

import threading
from collections.abc import Callable

__all__ = ["THREADS", "run_in_threads"]

THREADS = 8


def run_in_threads(work: Callable[[int], None]) -> None:
    """Call `work` with the number of the thread in eight threads; the first error is raised after all have ended."""
    failures: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
