"""Brings the editable installation up to date, once and loudly, so that processes which import it side by side find
nothing to rebuild.
"""

import sys
from pathlib import Path

import progress
import toolchain
from project_lock import project_lock

NINJA = Path(sys.executable).parent / "ninja"


def main() -> int:
    with project_lock():
        code, said = progress.run("building what changed", NINJA, "-C", "build", env=toolchain.compiler_cache())
    if code != 0:
        print(said, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
