"""Owns: what every memory resource promises about streams: bad ones are refused, and order is kept across them.

Must not know: any particular resource.
"""

from collections.abc import Callable

import pytest

from tensormem import errors
from tensormem._core import host_facts
from tensormem.mr import DeviceMemoryResource, HostMemoryResource
from tensormem.streams import Stream
from tensormem.testing.applicability import needs
from tensormem.testing.resource_suite import Gate, ResourceSuite

__all__ = ["StreamConformance", "TheirStream"]


class TheirStream:
    """A stream as another library would hand it over."""

    def __init__(self, stream: Stream) -> None:
        self._answer = 0, stream.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """The version of the protocol, and the handle."""
        return self._answer


class StreamConformance(ResourceSuite):
    """What every resource promises about streams. `ResourceConformance` has it all."""

    # --- Bad streams: a clear error, and nothing changes ---

    def test_a_destroyed_stream_is_refused_and_the_block_stays_live(self, mr: DeviceMemoryResource) -> None:
        gone = Stream(mr.driver)
        block = mr.allocate(64, gone)
        gone.close()
        before = mr.counters
        calls: list[Callable[[], object]] = [
            lambda: mr.allocate(64, gone),
            lambda: mr.deallocate(block, gone),
            lambda: mr.prepare_block_use(block, gone, "read"),
            lambda: mr.finish_block_use(block, gone, "write"),
            lambda: mr.record_block_use(block, gone),
        ]
        for call in calls:
            with pytest.raises(errors.StreamMisuse):
                call()
        with pytest.raises(errors.StreamMisuse), mr.launch(gone) as use:
            use.read(block)
        assert (block.state, mr.counters) == ("live", before)
        mr.deallocate(block, Stream.default(mr.driver))

    def test_what_is_no_stream_is_refused(self, mr: DeviceMemoryResource, stream: Stream) -> None:
        block = mr.allocate(64)
        before = mr.counters
        never_made = Stream.__new__(Stream)
        for nonsense in ("stream", 0, int(stream.id), stream.record(), object(), never_made):
            with pytest.raises(errors.StreamMisuse):
                mr.allocate(64, nonsense)  # type: ignore[arg-type]
            with pytest.raises(errors.StreamMisuse):
                mr.deallocate(block, nonsense)  # type: ignore[arg-type]
        assert (block.state, mr.counters) == ("live", before)
        mr.deallocate(block)

    def test_a_stream_of_another_library_is_taken(self, mr: DeviceMemoryResource, stream: Stream) -> None:
        theirs = TheirStream(stream)
        block = mr.allocate(64, theirs)
        assert block.alloc_stream == stream.id
        if mr.supports_block_use_tracking:
            mr.record_block_use(block, theirs)
        mr.deallocate(block, theirs)
        stream.synchronize()
        mr.reap_pending()
        assert block.state == "freed"

    def test_the_id_of_a_living_stream_is_as_good_as_the_stream(self, mr: DeviceMemoryResource) -> None:
        with Stream(mr.driver) as stream:
            number = stream.id
            block = mr.allocate(64, number)
            assert block.alloc_stream == number
            mr.deallocate(block, number)
        with pytest.raises(errors.StreamMisuse):
            mr.allocate(64, number)

    # --- Order ---

    def test_a_block_of_a_busy_stream_is_not_free_before_the_stream_has_passed(
        self, mr: DeviceMemoryResource, stream: Stream
    ) -> None:
        gate = Gate()
        gate.hold(stream)
        block = mr.allocate(4096, stream)
        mr.deallocate(block, stream)
        elsewhere = mr.allocate(4096)
        assert elsewhere.ptr != block.ptr, "reused on another stream before it was safe"
        gate.open()
        stream.synchronize()
        mr.reap_pending()
        assert block.state == "freed"
        mr.deallocate(elsewhere)

    def test_tracking_works_or_says_that_it_does_not(self, mr: DeviceMemoryResource, stream: Stream) -> None:
        block = mr.allocate(4096)
        if mr.supports_block_use_tracking:
            mr.prepare_block_use(block, stream, "write")
            mr.finish_block_use(block, stream, "write")
            mr.record_block_use(block, stream)
        else:
            for call in (mr.prepare_block_use, mr.finish_block_use):
                with pytest.raises(errors.StreamMisuse):
                    call(block, stream, "read")
            with pytest.raises(errors.StreamMisuse):
                mr.record_block_use(block, stream)
        mr.deallocate(block)

    def test_uses_of_a_stale_or_foreign_block_are_refused(self, mr: DeviceMemoryResource, stream: Stream) -> None:
        block, elsewhere = mr.allocate(64), HostMemoryResource()
        mr.deallocate(block)
        with pytest.raises((errors.UseAfterFree, errors.StreamMisuse)):
            mr.prepare_block_use(block, stream, "read")
        with pytest.raises(errors.ForeignBlock):
            mr.finish_block_use(elsewhere.allocate(64), stream, "read")

    @needs("tracks_block_uses")
    def test_a_read_waits_for_the_write_of_another_stream(self, mr: DeviceMemoryResource, stream: Stream) -> None:
        gate, order = Gate(), list[str]()
        block = mr.allocate(4096)
        with Stream(mr.driver) as reader:
            gate.hold(stream)
            stream.launch(order.append, "write")
            mr.finish_block_use(block, stream, "write")
            mr.prepare_block_use(block, reader, "read")
            reader.launch(order.append, "read")
            gate.open()
            reader.synchronize()
            stream.synchronize()
        assert order == ["write", "read"]
        mr.deallocate(block)

    @needs("tracks_block_uses")
    def test_freeing_waits_for_the_uses_of_other_streams(self, mr: DeviceMemoryResource, stream: Stream) -> None:
        gate = Gate()
        block = mr.allocate(4096)
        with Stream(mr.driver) as other:
            gate.hold(other)
            mr.finish_block_use(block, other, "read")
            mr.deallocate(block, stream)
            mr.reap_pending()
            heir = mr.allocate(4096)
            assert heir.ptr != block.ptr, "handed out again while another stream reads it"
            gate.open()
            other.synchronize()
            stream.synchronize()
        mr.reap_pending()
        assert block.state == "freed"
        mr.deallocate(heir)

    def test_a_bad_access_is_refused(self, mr: DeviceMemoryResource, stream: Stream) -> None:
        block = mr.allocate(64)
        with pytest.raises((errors.InvalidArgument, errors.StreamMisuse)):
            mr.prepare_block_use(block, stream, "scribble")
        mr.deallocate(block)

    @needs("tracks_block_uses")
    def test_a_block_that_waits_for_a_stream_cannot_be_freed_again(
        self, mr: DeviceMemoryResource, stream: Stream
    ) -> None:
        gate = Gate()
        block = mr.allocate(4096)
        gate.hold(stream)
        mr.record_block_use(block, stream)
        mr.deallocate(block)
        waiting = mr.counters
        with pytest.raises(errors.UseAfterFree):
            mr.deallocate(block)
        if mr.is_host_accessible:
            with pytest.raises(errors.UseAfterFree):
                memoryview(block)
        assert mr.counters == waiting
        gate.open()
        stream.synchronize()
        Stream.default(mr.driver).synchronize()  # on a GPU it is a queue like any other
        mr.reap_pending()
        assert (block.state, mr.bytes_outstanding) == ("freed", 0)

    @needs("tracks_block_uses", "on_the_host")
    def test_however_often_a_block_is_read_it_holds_a_few_events(
        self, mr: DeviceMemoryResource, stream: Stream
    ) -> None:
        gate = Gate()
        block = mr.allocate(4096)
        with Stream(mr.driver) as other:
            for reader in (stream, other):
                gate.hold(reader)
                mr.record_block_use(block, reader)
            before = int(str(host_facts()["events"]))
            for _ in range(500):
                mr.record_block_use(block, stream)
                mr.record_block_use(block, other)
            assert int(str(host_facts()["events"])) <= before + 2
            gate.open()
            other.synchronize()
            stream.synchronize()
        mr.deallocate(block)
