"""Runs import-linter on the source tree itself.

The finder of an editable installation hides the folder that import-linter wants to read, so it steps aside first.
"""

import sys
from pathlib import Path

from importlinter.cli import lint_imports_command

sys.meta_path = [finder for finder in sys.meta_path if type(finder).__name__ != "MesonpyMetaFinder"]
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

lint_imports_command(["--no-cache", "--no-logo"])
