"""Owns: running a piece of Python in a process of its own, and telling how it ended."""

import subprocess
import sys
import textwrap

# Long enough for a machine under load; a process that hangs reaches it, and then the test has failed.
TIME_LIMIT = 100.0


def run_python(source: str, *options: str, time_limit: float = TIME_LIMIT) -> subprocess.CompletedProcess[str]:
    """Runs `source` with the interpreter's `options`."""
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=time_limit,
    )


def check_python(source: str, *options: str) -> str:
    """Runs `source`; it has to end well and to say nothing on stderr. Gives what it printed."""
    result = run_python(source, *options)
    assert (result.returncode, result.stderr) == (0, ""), f"exit code {result.returncode}\n{result.stderr}"
    return result.stdout
