# cython: language_level=3, freethreading_compatible=True
"""Owns: resources and their blocks, the leaves and suballocators that make memory, the adaptors around them, plans and budgets."""
include "resource/resources.pxi"
include "resource/budgets.pxi"
include "resource/leaves.pxi"
include "resource/suballocators.pxi"
include "resource/adaptors.pxi"
include "resource/plans.pxi"
