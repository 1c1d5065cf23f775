"""Owns: what happens in a Python program that `tensormem record` starts, before its first line.

The folder `path` is put in front of PYTHONPATH; Python imports `sitecustomize` from there, which calls
`watch_program`. Must not know: traces, and whoever reads them.
"""

from tensormem.startup.program import watch_program

__all__ = ["watch_program"]
