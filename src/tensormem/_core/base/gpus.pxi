"""Owns: a vendor's GPU driver as Python opens it: its devices, its words for its errors, what it holds.

Must not know: which libraries there are to open; `tensormem.drivers` does.
"""
from libcpp.string cimport string

from tensormem._core.construction cimport only_the_core_makes
from tensormem._core.native_gpu cimport GpuHeld, gpu_driver, open_gpu_platform
from tensormem._core.native_gpu cimport GpuPlatform as NativePlatform

from tensormem import errors


cdef class GpuPlatform:
    """One vendor's driver, opened. Got from `tensormem.drivers`, never made by hand."""

    cdef NativePlatform* native
    cdef readonly str vendor
    cdef readonly tuple drivers
    cdef object __weakref__

    @property
    def version(self):
        """The driver's version, as it numbers it."""
        return self.native.api().version()

    @property
    def simulated(self):
        """Whether it is the simulated GPU."""
        return self.native.api().is_simulated()

    @property
    def functions(self):
        """The names of the library's functions that may be called, those that this driver lacks included."""
        return tuple([name.decode() for name in self.native.api().functions()])

    @property
    def closed(self):
        """Whether its calls are refused: it was closed, or this process was forked after it was opened."""
        return self.native.is_lost()

    def explain(self, code):
        """(name, text) that the driver has for one of its answers; empty where it has none."""
        cdef const char* name = self.native.api().error_name(code)
        cdef const char* text = self.native.api().error_text(code)
        return ("" if name is NULL else name.decode(), "" if text is NULL else text.decode())

    @property
    def held(self):
        """What is made and not yet destroyed, by kind."""
        cdef GpuHeld held = self.native.held()
        return {
            "streams": held.streams,
            "events": held.events,
            "reservations": held.reservations,
            "physicals": held.physicals,
            "externals": held.externals,
        }

    def close(self):
        """Let go of the devices. Everything of this platform refuses from now on."""
        with nogil:
            self.native.close()

    def __repr__(self):
        kind = "simulated, " if self.simulated else ""
        return f"<GpuPlatform {self.vendor} ({kind}{len(self.drivers)} devices)>"

    def __reduce__(self):
        raise TypeError("a GPU platform belongs to its process and cannot be pickled")


only_the_core_makes(GpuPlatform, b"GPU platforms are opened by tensormem.drivers")


def open_gpu(str vendor not None, str library not None=""):
    """Open a vendor's driver library, the system's unless told; `DriverUnavailable` with the reason when it fails."""
    cdef string name = vendor.encode()
    cdef string path = library.encode()
    cdef string why
    cdef NativePlatform* native
    with nogil:
        native = open_gpu_platform(name, path, &why)
    if native is NULL:
        raise errors.DriverUnavailable(vendor, why.decode(errors="replace"))
    cdef GpuPlatform platform = GpuPlatform.__new__(GpuPlatform)
    platform.native = native
    platform.vendor = vendor
    platform.drivers = tuple(
        [wrap_driver(gpu_driver(native[0], device), device, native.api().is_simulated())
         for device in range(native.device_count())])
    return platform
