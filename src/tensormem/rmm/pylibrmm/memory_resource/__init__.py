"""Owns: the resources by the names of RMM's compiled package. Must not know: who uses them."""

from tensormem.rmm.pylibrmm.memory_resource._memory_resource import *  # noqa: F403 - the same names, listed there
from tensormem.rmm.pylibrmm.memory_resource._memory_resource import __all__ as __all__
