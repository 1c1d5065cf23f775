# cython: language_level=3, freethreading_compatible=True
"""Owns: what every compiled module stands on: sizes, shortages, drivers, streams, GPUs, planned faults and identities of memory."""
include "base/sizes.pxi"
include "base/shortages.pxi"
include "base/drivers.pxi"
include "base/streams.pxi"
include "base/gpus.pxi"
include "base/faults.pxi"
include "base/identities.pxi"
