"""Every resource passes the same suite. Adding one costs three lines."""

import ctypes

from tensormem import mr
from tensormem.streams import Stream
from tensormem.testing.resources import ResourceConformance


class TestHostMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.HostMemoryResource()


class TestHostMemoryResourceWithHugePages(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.HostMemoryResource(huge_pages=True, zeroed=True, numa_node=0)


class TestPinnedMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PinnedMemoryResource()


class TestCallbackMemoryResource(ResourceConformance):
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
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.HostMemoryResource())


class TestPoolMemoryResourceOfFixedSize(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.HostMemoryResource(), "128MiB", "128MiB")


class TestPoolMemoryResourceThatKeepsNothing(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.HostMemoryResource(), release_threshold=0)


class TestPoolOfPool(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.PoolMemoryResource(mr.HostMemoryResource()))


class TestFixedSizeMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.FixedSizeMemoryResource(mr.HostMemoryResource(), "1MiB", 8)


class TestBinningMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.BinningMemoryResource(mr.PoolMemoryResource(mr.HostMemoryResource()), 8, 18)


class TestArenaMemoryResource(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.ArenaMemoryResource(mr.HostMemoryResource(), "256MiB")


class TestLimitingResourceAdaptor(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.LimitingResourceAdaptor(mr.PoolMemoryResource(mr.HostMemoryResource()), "256MiB")


class TestLimitingResourceAdaptorOverALeaf(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.LimitingResourceAdaptor(mr.HostMemoryResource(), "256MiB")


class TestStatisticsResourceAdaptor(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.StatisticsResourceAdaptor(mr.HostMemoryResource())


class TestAlignedResourceAdaptor(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.AlignedResourceAdaptor(mr.PoolMemoryResource(mr.HostMemoryResource()), 4096, "4KiB")


class TestPrefetchResourceAdaptor(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PrefetchResourceAdaptor(mr.HostMemoryResource())


class TestFaultInjectionResourceAdaptor(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.FaultInjectionResourceAdaptor(mr.HostMemoryResource(), tag="never used")


class TestFailureCallbackResourceAdaptor(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.FailureCallbackResourceAdaptor(mr.HostMemoryResource(), lambda nbytes: False)


class TestPressureResourceAdaptor(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PressureResourceAdaptor(
            mr.HostMemoryResource(), lambda level, used: None, warn=1000, critical=2000, hysteresis=100
        )


class TestLoggingResourceAdaptor(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.LoggingResourceAdaptor(mr.HostMemoryResource(), sink=mr.RingSink(64))


class TestLoggingResourceAdaptorWithAFailingSink(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        def refuse(record: mr.LogRecord) -> None:
            raise OSError("the disk is full")

        return mr.LoggingResourceAdaptor(mr.HostMemoryResource(), sink=refuse)


class TestTrackingResourceAdaptor(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.TrackingResourceAdaptor(mr.HostMemoryResource(), capture_stacks=True)


class TestDebugGuardResourceAdaptor(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.DebugGuardResourceAdaptor(mr.PoolMemoryResource(mr.HostMemoryResource()), quarantine_bytes=0)


class PassingOn(mr.DeviceMemoryResource):
    """An adaptor written in Python that changes nothing."""


class TestResourceWrittenInPython(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return PassingOn(mr.PoolMemoryResource(mr.HostMemoryResource()))


class TestStackWithAResourceWrittenInPythonInside(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.StatisticsResourceAdaptor(PassingOn(mr.LimitingResourceAdaptor(mr.HostMemoryResource(), "1GiB")))


class TestPoolOverAResourceWrittenInPython(ResourceConformance):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(PassingOn(mr.HostMemoryResource()))
