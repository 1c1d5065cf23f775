"""Owns: what every resource with an upstream is. Must not know: what it does with the upstream's memory."""

from tensormem import errors, mr
from tensormem.rmm.pylibrmm.memory_resource.device_memory_resource import DeviceMemoryResource

__all__ = ["UpstreamResourceAdaptor"]


class UpstreamResourceAdaptor(DeviceMemoryResource):
    """A resource that gets its memory from another, which it keeps alive.

    `upstream_mr` is one of `rmm.mr`, or any resource of tensormem.

    >>> from tensormem import rmm
    >>> system = rmm.mr.SystemMemoryResource()
    >>> rmm.mr.StatisticsResourceAdaptor(system).get_upstream() is system
    True
    """

    upstream_mr: DeviceMemoryResource

    def __init__(self, upstream_mr: DeviceMemoryResource | mr.DeviceMemoryResource, resource: mr.DeviceMemoryResource):
        super().__init__(resource)
        self.upstream_mr = wrapped(upstream_mr)

    def get_upstream(self) -> DeviceMemoryResource:
        """The resource that the memory comes from."""
        return self.upstream_mr


def wrapped(upstream_mr: DeviceMemoryResource | mr.DeviceMemoryResource) -> DeviceMemoryResource:
    """The upstream under RMM's calls."""
    return upstream_mr if isinstance(upstream_mr, DeviceMemoryResource) else DeviceMemoryResource(upstream_mr)


def resource_of(upstream_mr: DeviceMemoryResource | mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
    """The resource of tensormem behind an upstream; None and other things are refused."""
    if isinstance(upstream_mr, DeviceMemoryResource):
        return upstream_mr.resource
    if isinstance(upstream_mr, mr.DeviceMemoryResource):
        return upstream_mr
    raise errors.InvalidArgument(f"Argument `upstream_mr` must be a resource, not {type(upstream_mr).__name__}")
