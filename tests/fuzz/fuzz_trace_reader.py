"""Everything that reads traces, fed with any bytes: it reads them or raises `TraceError`, and does nothing else.

Run by itself it is a fuzzer, where atheris is installed: `python tests/fuzz/fuzz_trace_reader.py corpus/`. The tests
call `read_all` with damaged traces of their own.
"""

import sys
import tempfile
from pathlib import Path

from tensormem import trace
from tensormem.errors import InvalidLifetimes, TraceError
from tensormem.reports.traces import summarize, tree_of


def read_all(data: bytes) -> None:
    """Reads whatever can be read of these bytes as a trace."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any"
        path.write_bytes(data)
        try:
            with trace.open(path) as opened:
                summarize(opened)
                tree_of(opened)
                opened.lifetimes()
                for event in opened.window(1, 2**62).events():
                    opened.stack(event)
        except (TraceError, InvalidLifetimes):
            pass


def main() -> None:
    """Fuzz until something else happens."""
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, read_all)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
