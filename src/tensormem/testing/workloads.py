"""Owns: where real workloads lie on this machine: recorded lifetimes, snapshots, request traces.

They are not part of the project. `TENSORMEM_DATA` names their folder; without it, `shared/data` beside a clone is used.
Tests, benchmarks and examples ask here, and fall back to workloads that they generate.
"""

import os
from pathlib import Path

VARIABLE = "TENSORMEM_DATA"
_BESIDE_A_CLONE = Path(__file__).resolve().parents[4] / "shared" / "data"


def workload_folder() -> Path | None:
    """The folder of real workloads, or None if this machine has none.

    Raises FileNotFoundError where `TENSORMEM_DATA` names a folder that does not exist.
    """
    named = os.environ.get(VARIABLE, "auto")
    if named != "auto":
        folder = Path(named)
        if not folder.is_dir():
            raise FileNotFoundError(f"{VARIABLE}={named} is not a folder; unset it to go on without real workloads")
        return folder
    return _BESIDE_A_CLONE if _BESIDE_A_CLONE.is_dir() else None


def workload_files(pattern: str) -> list[Path]:
    """The real workloads whose path in the folder matches, such as `torch/*.csv`, in order; empty if there are none."""
    folder = workload_folder()
    return sorted(folder.glob(pattern)) if folder is not None else []
