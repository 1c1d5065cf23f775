"""Owns: traces of other tools, one file per format. Each takes bytes, trusts none of them, and gives a `Trace`."""
