"""Owns: how the documentation is built. Pages are Markdown (MyST); the reference is read from docstrings."""

from sphinx.application import Sphinx

from tensormem import __version__

project = "tensormem"
release = version = __version__
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
