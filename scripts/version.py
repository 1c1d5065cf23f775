#!/usr/bin/env python3
"""Prints the version of tensormem, for the build. It stands in one place: `__version__` in the package."""

import re
from pathlib import Path

text = (Path(__file__).resolve().parent.parent / "src" / "tensormem" / "__init__.py").read_text(encoding="utf-8")
found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
if found is None:
    raise SystemExit('src/tensormem/__init__.py has no line __version__ = "..."')
print(found[1])
