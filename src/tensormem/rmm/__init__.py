"""Owns: RMM's public names over tensormem's resources, on the host and on GPUs: `import tensormem.rmm as rmm`.

What is the same, what differs and why, and what is missing: docs/reference/rmm.md. Must not know: reports, tools.

>>> import tensormem.rmm as rmm
>>> rmm.reinitialize(pool_allocator=True, initial_pool_size="1MiB", maximum_pool_size="64MiB")
>>> rmm.DeviceBuffer.to_device(b"abc").tobytes()
b'abc'
>>> rmm.reinitialize()
"""

from tensormem.public_functions import explain_misspellings
from tensormem.rmm import _cuda as _cuda
from tensormem.rmm import mr, pylibrmm, statistics
from tensormem.rmm._version import __git_commit__, __version__
from tensormem.rmm.mr import disable_logging, enable_logging, get_log_filenames
from tensormem.rmm.pylibrmm.device_buffer import DeviceBuffer
from tensormem.rmm.pylibrmm.logger import (
    flush_logger,
    get_flush_level,
    get_logging_level,
    level_enum,
    set_flush_level,
    set_logging_level,
    should_log,
)
from tensormem.rmm.rmm import (
    RMMError,
    is_initialized,
    register_reinitialize_hook,
    reinitialize,
    unregister_reinitialize_hook,
)

__all__ = [
    "DeviceBuffer",
    "RMMError",
    "__git_commit__",
    "__version__",
    "disable_logging",
    "enable_logging",
    "flush_logger",
    "get_flush_level",
    "get_log_filenames",
    "get_logging_level",
    "is_initialized",
    "level_enum",
    "mr",
    "pylibrmm",
    "register_reinitialize_hook",
    "reinitialize",
    "set_flush_level",
    "set_logging_level",
    "should_log",
    "statistics",
    "unregister_reinitialize_hook",
]

explain_misspellings(globals())
