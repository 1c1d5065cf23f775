"""Owns: how the documentation is built. Pages are Markdown (MyST); reference pages read the docstrings of the package."""

import tomllib
from pathlib import Path

_project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = _project["name"]
release = version = _project["version"]
copyright = "the tensormem authors"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"tensormem {release}"

default_role = "code"  # docstrings write `names` in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
