"""Owns: the way in for the shell: `tensormem` and `python -m tensormem`. Says how to get the extra when it is missing.

Must not know: any command.
"""

import sys
from typing import NoReturn

from tensormem import command_process


def main() -> NoReturn:
    """Runs the command line; ends with 3 when the extra `cli` is not installed."""
    command_process.declare()
    try:
        from tensormem.cli.main import cli
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("click", "rich"):
            raise
        print(f"This command needs the package {package}, which is not installed. Type:", file=sys.stderr)
        print("    pip install 'tensormem[cli]'", file=sys.stderr)
        sys.exit(3)
    sys.exit(cli(prog_name="tensormem"))


if __name__ == "__main__":
    main()
