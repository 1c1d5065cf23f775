"""Owns: how the documentation is built. Pages are Markdown (MyST); the reference is read from docstrings."""

import tomllib
from pathlib import Path

from sphinx.application import Sphinx

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
autodoc_mock_imports = ["dask", "distributed", "ray"]  # the engines are not needed to read about us


def _leave_out_module_docstrings(app: Sphinx, what: str, *details: object) -> None:
    """They tell maintainers what a file owns; a page introduces its module to readers itself."""
    lines = details[-1]
    if what == "module" and isinstance(lines, list):
        lines.clear()


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", _leave_out_module_docstrings)
