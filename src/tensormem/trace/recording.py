"""Owns: recording as users see it: `with tm.trace("run.tmt"):`, and the report at its end.

The events are gathered and written by the compiled core. Must not know: the format of the file.
"""

from __future__ import annotations

from os import PathLike, fspath
from types import TracebackType

from tensormem._core import (
    RecordingReport,
    flush_recording,
    is_recording,
    recording_report,
    start_recording,
    stop_recording,
    trace_counter,
)
from tensormem.construction import constructed_once
from tensormem.errors import InvalidArgument
from tensormem.startup.imports import after_import

__all__ = ["Recording", "RecordingReport", "counter", "is_recording", "start"]

counter = trace_counter


def start(path: str | PathLike[str], *, stacks: bool = False, numpy: bool = True, overwrite: bool = False) -> Recording:
    """Record from now on, until `stop()` of what is returned or the end of the process; with `numpy`, its arrays too.

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from tensormem import trace
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.tmt"
    >>> recording = trace.start(path)
    >>> array = np.zeros(2**17)
    >>> _ = recording.stop()
    >>> trace.open(path).peaks("tag")["numpy"].nbytes
    1048576
    """
    recording = Recording(path, stacks=stacks, overwrite=overwrite).start()
    if numpy:
        after_import("numpy", _watch_numpy)
    return recording


def _watch_numpy() -> None:
    from tensormem.interop import numpy

    numpy.watch()


@constructed_once
class Recording:
    """A recording of everything this process does with memory, into a file; made by `tm.trace(path)`.

    It begins with `with` or `start()` and ends with the block or `stop()`. There is one at a time in a process.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.tmt"
    >>> with tm.trace(path) as recording:
    ...     block = tm.mr.HostMemoryResource().allocate("1MiB")
    >>> recording.report.dropped, tm.trace.open(path).complete
    (0, True)
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        stacks: bool = False,
        overwrite: bool = False,
        flush_interval: float = 0.05,
    ) -> None:
        self.path = fspath(path)
        self._options = {"stacks": stacks, "overwrite": overwrite, "flush_interval": flush_interval}
        self._report: RecordingReport | None = None
        self._started = False

    def start(self) -> Recording:
        """Record from now on. `InvalidArgument` while the process records already, or when the file is there."""
        start_recording(self.path, **self._options)  # type: ignore[arg-type]
        self._started = True
        return self

    def stop(self) -> RecordingReport:
        """Everything reported before is in the file, which is closed. What it came to."""
        if not self._started:
            raise InvalidArgument("this recording is not running")
        self._started = False
        self._report = stop_recording()
        return self._report

    def flush(self) -> None:
        """Everything that this thread reported before is in the file."""
        if not self._started:
            raise InvalidArgument("this recording is not running")
        flush_recording()

    @property
    def report(self) -> RecordingReport:
        """What the recording has come to, so far or in the end: events, dropped, nbytes, duration_ns."""
        if self._report is not None:
            return self._report
        return recording_report() if self._started else RecordingReport(0, 0, 0, 0)

    def __enter__(self) -> Recording:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Recording into {self.path!r}, {'running' if self._started else 'not running'}>"
