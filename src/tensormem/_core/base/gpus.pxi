"""Owns: a vendor's GPU driver as Python opens it: its devices, its words for its errors, what it holds.

Must not know: which libraries there are to open; `tensormem.drivers` does.
"""
from libc.stdint cimport int32_t
from libcpp cimport bool as cbool
from libcpp.string cimport string

from tensormem._core.construction cimport only_the_core_makes
from tensormem._core.native_gpu cimport (
    DeviceAttribute,
    GpuHeld,
    gpu_driver,
    kDeviceAttributeCount,
    kDeviceAttributes,
    open_gpu_platform,
)
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
    def library(self):
        """The file that its functions are from."""
        return self.native.api().library().decode(errors="replace")

    @property
    def calls(self):
        """How often each function that tensormem knows was called (None: the library has none of that name). Empty
        unless the platform was opened with `count_calls`."""
        return {each.name.decode(): None if each.count < 0 else each.count for each in self.native.api().calls()}

    def attributes(self, int32_t device):
        """What the driver says about a device, by name; a fact that it does not know is not there."""
        cdef int32_t value = 0
        cdef size_t each
        cdef cbool known
        found = {}
        if not 0 <= device < self.native.device_count():
            raise errors.InvalidArgument(f"there is no device {device}; {self.vendor} has {self.native.device_count()}")
        if self.closed:
            return found
        for each in range(kDeviceAttributeCount):
            with nogil:
                known = self.native.api().attribute(device, <DeviceAttribute>each, &value)
            if known:
                found[kDeviceAttributes[each].name.decode()] = value
        return found

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
            "pools": held.pools,
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


def open_gpu(str vendor not None, str library not None="", *, cbool count_calls=False):
    """Open a vendor's driver library, the system's unless told; `DriverUnavailable` with the reason when it fails.

    With `count_calls` the platform counts how often it calls each function, which costs a few nanoseconds a call.
    """
    cdef string name = vendor.encode()
    cdef string path = library.encode()
    cdef string why
    cdef NativePlatform* native
    with nogil:
        native = open_gpu_platform(name, path, &why, count_calls)
    if native is NULL:
        raise errors.DriverUnavailable(vendor, why.decode(errors="replace"))
    cdef GpuPlatform platform = GpuPlatform.__new__(GpuPlatform)
    platform.native = native
    platform.vendor = vendor
    platform.drivers = tuple(
        [wrap_driver(gpu_driver(native[0], device), device, native.api().is_simulated())
         for device in range(native.device_count())])
    return platform
