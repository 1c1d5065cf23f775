# cython: language_level=3, freethreading_compatible=True
"""Owns: what watches: recordings, and the adaptors that log, track and guard."""
include "trace/traces.pxi"
include "trace/observers.pxi"
include "trace/pickles.pxi"
