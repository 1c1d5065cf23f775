"""Every resource passes the same suite. Adding one costs three lines."""

import ctypes
import functools

from tensormem import mr
from tensormem._core import abstract_driver
from tensormem.streams import Stream
from tensormem.testing.resources import ResourceConformance
from tensormem.trace import Lifetime, Plan, plan


class TestHostMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.HostMemoryResource()


class TestHostMemoryResourceWithHugePages(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.HostMemoryResource(huge_pages=True, zeroed=True, numa_node=0)


class TestPinnedMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PinnedMemoryResource()


class TestSharedMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.SharedMemoryResource()


class TestPoolOfSharedMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.SharedMemoryResource())


class TestElasticMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.ElasticMemoryResource()


class TestElasticMemoryResourceThatKeepsNothing(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.ElasticMemoryResource(page_size="64KiB", release_threshold=0)


class TestElasticMemoryResourceOfAbstractMemory(ResourceConformance):
    host_accessible = False
    on_the_host = False

    def make(self) -> mr.DeviceMemoryResource:
        return mr.ElasticMemoryResource(abstract_driver())


class TestPoolOfElasticMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.ElasticMemoryResource())


@functools.cache
def planned() -> Plan:
    sizes = (64, 1000, 1024, 4096, 65536, 1 << 20)
    blocks = [Lifetime(str(number), number, number + 9, sizes[number % 6]) for number in range(60)]
    return plan(blocks, alignment=256, time_limit=0)  # the first plan does: it is not about packing


class TestPlannedMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PlannedMemoryResource(planned(), mr.HostMemoryResource())


class TestPlannedMemoryResourceWithNothingPlanned(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.PlannedMemoryResource(plan([]), upstream)


class TestPlannedMemoryResourceOverAPool(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.PlannedMemoryResource(plan([]), mr.PoolMemoryResource(upstream))


class TestAbstractMemoryResource(ResourceConformance):
    host_accessible = False
    makes_system_calls = False

    def make(self) -> mr.DeviceMemoryResource:
        return mr.AbstractMemoryResource("1TiB")


class TestCallbackMemoryResource(ResourceConformance):
    makes_system_calls = False  # those of the callback are not ours

    def make(self) -> mr.DeviceMemoryResource:
        kept: dict[int, ctypes.Array[ctypes.c_char]] = {}

        def take(nbytes: int, stream: Stream) -> int:
            if nbytes > 1 << 40:
                raise MemoryError("no machine has that much")
            buffer = ctypes.create_string_buffer(nbytes)
            kept[ctypes.addressof(buffer)] = buffer
            return ctypes.addressof(buffer)

        def give_back(address: int, nbytes: int, stream: Stream) -> None:
            assert len(kept.pop(address)) == nbytes

        return mr.CallbackMemoryResource(take, give_back, alignment=1)


class TestPoolMemoryResource(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(upstream)


class TestPoolMemoryResourceOfFixedSize(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.HostMemoryResource(), "128MiB", "128MiB")


class TestPoolMemoryResourceThatKeepsNothing(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(upstream, release_threshold=0)


class TestPoolOfPool(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.PoolMemoryResource(upstream))


class TestFixedSizeMemoryResource(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.FixedSizeMemoryResource(upstream, "1MiB", 8)


class TestBinningMemoryResource(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.BinningMemoryResource(mr.PoolMemoryResource(upstream), 8, 18)


class TestArenaMemoryResource(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.ArenaMemoryResource(upstream, "256MiB")


class TestLimitingResourceAdaptor(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.LimitingResourceAdaptor(mr.PoolMemoryResource(upstream), "256MiB")


class TestLimitingResourceAdaptorOverALeaf(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.LimitingResourceAdaptor(upstream, "256MiB")


class TestStatisticsResourceAdaptor(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.StatisticsResourceAdaptor(upstream)


class TestAlignedResourceAdaptor(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.AlignedResourceAdaptor(mr.PoolMemoryResource(upstream), 4096, "4KiB")


class TestPrefetchResourceAdaptor(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.PrefetchResourceAdaptor(upstream)


class TestFaultInjectionResourceAdaptor(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.FaultInjectionResourceAdaptor(upstream, tag="never used")


class TestFailureCallbackResourceAdaptor(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.FailureCallbackResourceAdaptor(upstream, lambda nbytes: False)


class TestPressureResourceAdaptor(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.PressureResourceAdaptor(upstream, lambda level, used: None, warn=1000, critical=2000, hysteresis=100)


class TestLoggingResourceAdaptor(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.LoggingResourceAdaptor(upstream, sink=mr.RingSink(64))


class TestLoggingResourceAdaptorWithAFailingSink(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        def refuse(record: mr.LogRecord) -> None:
            raise OSError("the disk is full")

        return mr.LoggingResourceAdaptor(upstream, sink=refuse)


class TestTrackingResourceAdaptor(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.TrackingResourceAdaptor(upstream, capture_stacks=True)


class TestDebugGuardResourceAdaptor(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.DebugGuardResourceAdaptor(mr.PoolMemoryResource(upstream), quarantine_bytes=0)


class PassingOn(mr.DeviceMemoryResource):
    """An adaptor written in Python that changes nothing."""


class TestResourceWrittenInPython(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return PassingOn(mr.PoolMemoryResource(upstream))


class TestStackWithAResourceWrittenInPythonInside(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.StatisticsResourceAdaptor(PassingOn(mr.LimitingResourceAdaptor(upstream, "1GiB")))


class TestPoolOverAResourceWrittenInPython(ResourceConformance):
    def make_over(self, upstream: mr.DeviceMemoryResource) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(PassingOn(upstream))
