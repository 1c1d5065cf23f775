"""Owns: where the simulated GPU's libraries lie: in a folder of the package where no loader looks for drivers.

Must not know: how they are switched on, or who uses them.
"""

from importlib import resources

from tensormem import errors

_LIBRARIES = {"cuda": "libcuda.so.1", "rocm": "libamdhip64.so"}


def library_path(vendor: str) -> str:
    """The path of the library that simulates `vendor`'s driver."""
    library = resources.files("tensormem").joinpath("_simgpu", _LIBRARIES[vendor])
    if not library.is_file():
        raise errors.DriverUnavailable(vendor, "this installation of tensormem has no simulated GPU")
    return str(library)


def is_simulator(file: str) -> bool:
    """Whether a file is one of the simulated GPU's libraries."""
    folder = resources.files("tensormem").joinpath("_simgpu")
    return any(str(folder.joinpath(name)) == file for name in _LIBRARIES.values())
