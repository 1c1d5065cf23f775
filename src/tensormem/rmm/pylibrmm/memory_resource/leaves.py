"""Owns: the resources that make memory, by RMM's names. Each is of the device that is current when it is made.

Those that say CUDA need a GPU, of any vendor, and refuse without one. Must not know: which resource is current.
"""

from tensormem import drivers, errors, mr
from tensormem.rmm._cuda.gpu import driver_of, getDevice
from tensormem.rmm.pylibrmm.helper import parse_bytes
from tensormem.rmm.pylibrmm.memory_resource.device_memory_resource import DeviceMemoryResource

__all__ = [
    "CudaAsyncMemoryResource",
    "CudaMemoryResource",
    "ManagedMemoryResource",
    "PinnedHostMemoryResource",
    "SystemMemoryResource",
]


class CudaMemoryResource(DeviceMemoryResource):
    """The memory of the current GPU, one allocation of its driver for each block.

    >>> from tensormem import rmm
    >>> from tensormem.testing import simulated_gpu
    >>> with simulated_gpu(memory="64MiB"):
    ...     mr = rmm.mr.CudaMemoryResource()
    ...     mr.deallocate(mr.allocate(1024), 1024)
    """

    def __init__(self) -> None:
        super().__init__(mr.GpuMemoryResource(drivers.gpu(getDevice())))


class CudaAsyncMemoryResource(DeviceMemoryResource):
    """The memory of the current GPU, handed out in stream order by its driver's own pool.

    The pool is this resource's own. It keeps what is freed for the next blocks, up to `release_threshold`; the rest
    goes back to the device when a stream, an event or the device is waited for.

    >>> from tensormem import rmm
    >>> from tensormem.testing import simulated_gpu
    >>> with simulated_gpu(memory="64MiB"):
    ...     mr = rmm.mr.CudaAsyncMemoryResource(initial_pool_size="1MiB")
    ...     mr.deallocate(mr.allocate(1024), 1024)
    """

    resource: mr.GpuAsyncMemoryResource

    def __init__(
        self,
        initial_pool_size: int | str | None = None,
        release_threshold: int | None = None,
        enable_ipc: bool = False,
        enable_fabric: bool = False,
    ) -> None:
        if enable_ipc or enable_fabric:
            raise errors.NotSupported("Requested IPC memory handle type not supported")
        resource = mr.GpuAsyncMemoryResource(drivers.gpu(getDevice()), release_threshold=release_threshold)
        super().__init__(resource)
        if initial_pool_size is not None and (primed := parse_bytes(initial_pool_size)) > 0:
            resource.deallocate(resource.allocate(primed))


class ManagedMemoryResource(DeviceMemoryResource):
    """Memory that moves between the host and the current GPU by itself.

    >>> from tensormem import rmm
    >>> from tensormem.testing import simulated_gpu
    >>> with simulated_gpu(memory="64MiB"):
    ...     mr = rmm.mr.ManagedMemoryResource()
    ...     mr.deallocate(mr.allocate(1024), 1024)
    """

    def __init__(self) -> None:
        super().__init__(mr.ManagedMemoryResource(drivers.gpu(getDevice())))


class SystemMemoryResource(DeviceMemoryResource):
    """Main memory. Whether a GPU reaches it is the machine's affair.

    >>> from tensormem import rmm
    >>> mr = rmm.mr.SystemMemoryResource()
    >>> mr.deallocate(mr.allocate(1024), 1024)
    """

    def __init__(self) -> None:
        super().__init__(mr.HostMemoryResource())


class PinnedHostMemoryResource(DeviceMemoryResource):
    """Main memory that is locked in place, made by the driver of the current GPU if there is one.

    >>> from tensormem import rmm
    >>> mr = rmm.mr.PinnedHostMemoryResource()
    >>> mr.deallocate(mr.allocate(1024), 1024)
    """

    def __init__(self) -> None:
        super().__init__(mr.PinnedMemoryResource(driver_of(getDevice())))
