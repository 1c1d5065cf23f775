"""Owns: the version of RMM whose names these are. Must not know: anything else."""

__version__ = "26.10.00"
__git_commit__ = ""
