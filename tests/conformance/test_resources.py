"""Every resource passes the same suite. Adding one costs three lines."""

from tensormem import mr
from tensormem.testing.resources import ResourceConformance


class TestHostMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.HostMemoryResource()


class TestHostMemoryResourceWithHugePages(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.HostMemoryResource(huge_pages=True, zeroed=True, numa_node=0)
