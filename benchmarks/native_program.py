"""Owns: running a program of native/bench and reading the lines of JSON it prints."""

import json
import subprocess
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "build-bench" / "native" / "bench"


def figures(name: str) -> list[dict[str, Any]]:
    printed = subprocess.run([FOLDER / f"bench_{name}"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
