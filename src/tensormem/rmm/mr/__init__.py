"""Owns: RMM's resources, and which of them is current, by its names. Must not know: what they are made of.

>>> from tensormem import rmm
>>> pool = rmm.mr.PoolMemoryResource(rmm.mr.get_current_device_resource(), "1MiB", "64MiB")
>>> rmm.mr.set_current_device_resource(pool)
>>> buffer = rmm.DeviceBuffer(size=100)
>>> rmm.reinitialize()
"""

from tensormem.rmm.pylibrmm.memory_resource import *  # noqa: F403 - the same names, listed there
from tensormem.rmm.pylibrmm.memory_resource import __all__ as __all__
