"""Owns: the conformance suite that every memory resource passes, ours and yours.

Joining it costs a class of a few lines:

    class TestMyResource(ResourceConformance):
        def make(self):
            return MyResource()

Must not know: any particular resource.
"""

import ctypes
import gc
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tensormem import errors, units
from tensormem.mr import DeviceBlock, DeviceMemoryResource, HostMemoryResource
from tensormem.streams import Stream

__all__ = ["Gate", "ResourceConformance"]

_SIZES = [1, 2, 255, 256, 257, 4096, 65536, 1_000_003]
_ALIGNMENTS = [1, 2, 64, 256, 512, 4096]
_TOO_LARGE = 2**63 - 1


class Gate:
    """Work that holds a stream until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def hold(self, stream: Stream) -> None:
        """Queue work on `stream` that waits for `open`."""
        stream.launch(self._open.wait)

    def open(self) -> None:
        """Let the stream go on."""
        self._open.set()


class ResourceConformance:
    """What every resource promises. Subclass it, and say in `make` how to build one."""

    def make(self) -> DeviceMemoryResource:
        """A fresh resource with at least 64 MiB to give."""
        raise NotImplementedError("say how to make the resource")

    @pytest.fixture
    def mr(self) -> Iterator[DeviceMemoryResource]:
        """What `make` builds; at the end nothing of it may be out."""
        resource = self.make()
        yield resource
        resource.reap_pending()
        assert resource.bytes_outstanding == 0, "a test left memory behind"

    @pytest.fixture
    def stream(self, mr: DeviceMemoryResource) -> Iterator[Stream]:
        """A stream of the resource's driver."""
        with Stream(mr.driver) as stream:
            yield stream

    # --- Blocks are what was asked for ---

    @pytest.mark.parametrize("nbytes", _SIZES)
    def test_a_block_has_the_size_it_was_asked_for(self, mr: DeviceMemoryResource, nbytes: int) -> None:
        block = mr.allocate(nbytes)
        assert (block.nbytes, block.state, mr.bytes_outstanding) == (nbytes, "live", nbytes)
        mr.deallocate(block)
        assert (block.state, mr.bytes_outstanding) == ("freed", 0)

    @pytest.mark.parametrize("alignment", _ALIGNMENTS)
    def test_the_address_is_a_multiple_of_the_alignment(self, mr: DeviceMemoryResource, alignment: int) -> None:
        blocks = [mr.allocate(nbytes, alignment=alignment) for nbytes in _SIZES]
        assert [block.ptr % alignment for block in blocks] == [0] * len(blocks)
        assert all(block.alignment >= alignment for block in blocks)
        free_all(mr, blocks)

    def test_without_an_alignment_it_is_256(self, mr: DeviceMemoryResource) -> None:
        block = mr.allocate(100)
        assert (block.alignment, block.ptr % 256) == (256, 0)
        mr.deallocate(block)

    def test_every_byte_can_be_written_and_read(self, mr: DeviceMemoryResource) -> None:
        if not mr.is_host_accessible:
            return
        blocks = [mr.allocate(nbytes) for nbytes in _SIZES]
        for number, block in enumerate(blocks):
            ctypes.memset(block.ptr, number + 1, block.nbytes)
        for number, block in enumerate(blocks):
            assert set(ctypes.string_at(block.ptr, block.nbytes)) == {number + 1}
        free_all(mr, blocks)

    def test_live_blocks_never_overlap(self, mr: DeviceMemoryResource) -> None:
        blocks = [mr.allocate(nbytes) for nbytes in _SIZES * 8]
        free_all(mr, blocks[::3])
        blocks = [block for number, block in enumerate(blocks) if number % 3] + [mr.allocate(n) for n in _SIZES * 3]
        spans = sorted((block.ptr, block.ptr + block.nbytes) for block in blocks)
        assert all(left[1] <= right[0] for left, right in pairwise(spans))
        free_all(mr, blocks)

    def test_sizes_may_be_text(self, mr: DeviceMemoryResource) -> None:
        block = mr.allocate("64KiB")
        assert block.nbytes == units.parse_size("64KiB")
        mr.deallocate(block)

    def test_a_tag_is_kept(self, mr: DeviceMemoryResource) -> None:
        tagged, untagged = mr.allocate(64, tag="kv-cache"), mr.allocate(64)
        assert (tagged.tag, untagged.tag) == ("kv-cache", "untagged")
        free_all(mr, [tagged, untagged])

    def test_generations_are_never_given_twice(self, mr: DeviceMemoryResource) -> None:
        seen = set()
        for _ in range(200):
            block = mr.allocate(512)
            seen.add(block.generation)
            mr.deallocate(block)
        assert len(seen) == 200

    # --- Bad input: a clear error, and nothing changes ---

    @pytest.mark.parametrize("nbytes", [0, -1, -(2**70), _TOO_LARGE, 2**63, 2**64, 2**200, "12 potatoes", "", "-1 MiB"])
    def test_a_bad_size_is_refused_by_name(self, mr: DeviceMemoryResource, nbytes: int | str) -> None:
        before = mr.counters
        with pytest.raises(errors.InvalidSize):
            mr.allocate(nbytes)
        assert mr.counters == before

    @pytest.mark.parametrize("nbytes", [1.5, None, b"64", [1], True])
    def test_a_size_that_is_no_number_is_refused(self, mr: DeviceMemoryResource, nbytes: object) -> None:
        before = mr.counters
        with pytest.raises((errors.InvalidSize, TypeError)):
            mr.allocate(nbytes)  # type: ignore[arg-type]
        assert mr.counters == before

    @pytest.mark.parametrize("alignment", [0, 3, -256, 6000, 2**40, 2**64, 2**100])
    def test_a_bad_alignment_is_refused(self, mr: DeviceMemoryResource, alignment: int) -> None:
        before = mr.counters
        with pytest.raises(errors.InvalidAlignment):
            mr.allocate(64, alignment=alignment)
        assert mr.counters == before

    def test_more_than_there_is_is_out_of_memory(self, mr: DeviceMemoryResource) -> None:
        before = mr.counters["current_bytes"]
        with pytest.raises(MemoryError) as caught:
            mr.allocate(2**55)
        assert getattr(caught.value, "requested", None) == 2**55
        assert mr.counters["current_bytes"] == before

    def test_a_double_free_is_caught_and_changes_nothing(self, mr: DeviceMemoryResource) -> None:
        other, block = mr.allocate(64), mr.allocate(64)
        mr.deallocate(block)
        before = mr.counters
        with pytest.raises(errors.UseAfterFree) as caught:
            mr.deallocate(block)
        assert caught.value.generation == block.generation
        assert mr.counters == before
        mr.deallocate(other)

    def test_a_stale_block_does_not_free_the_heir_of_its_address(self, mr: DeviceMemoryResource) -> None:
        stale = mr.allocate(4096)
        address = stale.ptr
        mr.deallocate(stale)
        heirs = []
        for _ in range(64):
            heirs.append(mr.allocate(4096))
            if heirs[-1].ptr == address:
                break
        with pytest.raises(errors.UseAfterFree):
            mr.deallocate(stale)
        assert {heir.state for heir in heirs} == {"live"}
        free_all(mr, heirs)

    def test_a_foreign_block_is_refused_and_stays_live(self, mr: DeviceMemoryResource) -> None:
        elsewhere = HostMemoryResource()
        foreign = elsewhere.allocate(64)
        with pytest.raises(errors.ForeignBlock) as caught:
            mr.deallocate(foreign)
        assert (caught.value.generation, foreign.state) == (foreign.generation, "live")
        elsewhere.deallocate(foreign)

    def test_what_is_no_block_is_refused(self, mr: DeviceMemoryResource) -> None:
        for nonsense in (None, 0, 4096, "block", object()):
            with pytest.raises(TypeError):
                mr.deallocate(nonsense)  # type: ignore[arg-type]

    def test_a_destroyed_stream_is_refused_and_the_block_stays_live(self, mr: DeviceMemoryResource) -> None:
        stream = Stream(mr.driver)
        block = mr.allocate(64, stream)
        stream.close()
        for call in (lambda: mr.allocate(64, stream), lambda: mr.deallocate(block, stream)):
            with pytest.raises(errors.StreamMisuse):
                call()
        assert block.state == "live"
        mr.deallocate(block, Stream.default(mr.driver))

    def test_what_is_no_stream_is_refused(self, mr: DeviceMemoryResource) -> None:
        with pytest.raises(errors.StreamMisuse):
            mr.allocate(64, "stream")  # type: ignore[arg-type]

    def test_a_tag_that_is_no_text_is_refused(self, mr: DeviceMemoryResource) -> None:
        with pytest.raises(errors.InvalidArgument):
            mr.allocate(64, tag=7)  # type: ignore[arg-type]

    # --- Ownership ---

    def test_a_dropped_block_goes_back(self, mr: DeviceMemoryResource) -> None:
        block = mr.allocate(4096)
        assert mr.bytes_outstanding == 4096
        del block
        gc.collect()
        assert mr.bytes_outstanding == 0

    def test_blocks_outlive_the_name_of_their_resource(self) -> None:
        mr = self.make()
        block = mr.allocate(4096)
        del mr
        gc.collect()
        assert block.state == "live"
        if block.mr.is_host_accessible:
            ctypes.memset(block.ptr, 1, block.nbytes)
        block.mr.deallocate(block)
        assert block.state == "freed"

    def test_a_block_is_an_address_and_a_value(self, mr: DeviceMemoryResource) -> None:
        block = mr.allocate(64)
        assert (int(block.__index__()), block.id.ptr, block.id.generation) == (block.ptr, block.ptr, block.generation)
        assert block == block and hash(block) == hash(block)
        assert hex(block.ptr) in repr(block)
        mr.deallocate(block)

    # --- Counters ---

    def test_counters_add_up(self, mr: DeviceMemoryResource) -> None:
        blocks = [mr.allocate(nbytes) for nbytes in _SIZES]
        free_all(mr, blocks[:4])
        stats = mr.counters
        assert stats["current_bytes"] == sum(_SIZES[4:]) == mr.bytes_outstanding
        assert stats["current_count"] == len(_SIZES) - 4
        assert (stats["peak_bytes"], stats["peak_count"]) == (sum(_SIZES), len(_SIZES))
        assert (stats["total_bytes"], stats["total_count"]) == (sum(_SIZES), len(_SIZES))
        free_all(mr, blocks[4:])

    # --- Streams ---

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

    def test_a_read_waits_for_the_write_of_another_stream(self, mr: DeviceMemoryResource, stream: Stream) -> None:
        if not mr.supports_block_use_tracking:
            return
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

    def test_freeing_waits_for_the_uses_of_other_streams(self, mr: DeviceMemoryResource, stream: Stream) -> None:
        if not mr.supports_block_use_tracking:
            return
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

    # --- Threads ---

    def test_eight_threads_leave_every_counter_right(self, mr: DeviceMemoryResource) -> None:
        failures: list[BaseException] = []

        def churn(seed: int) -> None:
            try:
                held: list[DeviceBlock] = []
                for step in range(300):
                    held.append(mr.allocate(1 + (seed * 7919 + step * 104729) % 5000))
                    if len(held) > 8:
                        mr.deallocate(held.pop(step % len(held)))
                free_all(mr, held)
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert (mr.bytes_outstanding, mr.counters["total_count"]) == (0, 8 * 300)


def free_all(mr: DeviceMemoryResource, blocks: list[DeviceBlock]) -> None:
    """Give all of them back."""
    for block in blocks:
        mr.deallocate(block)
