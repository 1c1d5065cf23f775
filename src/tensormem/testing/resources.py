"""Owns: the conformance suite that every memory resource passes, ours and yours.

Joining it costs a class of a few lines:

    class TestMyAdaptor(ResourceConformance):
        def make_over(self, upstream):
            return MyAdaptor(upstream)

A resource without an upstream says `make(self)` instead. Must not know: any particular resource.
"""

import ctypes
import gc
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tensormem import errors, units
from tensormem.mr import DeviceBlock, DeviceMemoryResource, HostMemoryResource
from tensormem.testing.applicability import needs
from tensormem.testing.resource_promises import PromiseConformance
from tensormem.testing.resource_streams import StreamConformance
from tensormem.testing.resource_suite import Gate, free_all
from tensormem.testing.resource_upstreams import UpstreamConformance

__all__ = ["Gate", "ResourceConformance"]

_SIZES = [1, 2, 255, 256, 257, 4096, 65536, 1_000_003]
_ALIGNMENTS = [1, 2, 64, 256, 512, 4096]
_TOO_LARGE = 2**63 - 1


class ResourceConformance(StreamConformance, UpstreamConformance, PromiseConformance):
    """What every resource promises. Subclass it, and say in `make_over` or `make` how to build one."""

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

    @needs("host_accessible")
    def test_every_byte_can_be_written_and_read(self, mr: DeviceMemoryResource) -> None:
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

    def test_a_block_of_another_resource_of_its_kind_is_foreign(self, mr: DeviceMemoryResource) -> None:
        twin = self.make()
        ours, theirs = mr.allocate(64), twin.allocate(64)
        before = mr.counters, twin.counters
        for resource, block in ((mr, theirs), (twin, ours)):
            with pytest.raises(errors.ForeignBlock):
                resource.deallocate(block)
        assert (mr.counters, twin.counters) == before
        assert (ours.state, theirs.state) == ("live", "live")
        mr.deallocate(ours)
        twin.deallocate(theirs)

    def test_what_is_no_block_is_refused(self, mr: DeviceMemoryResource) -> None:
        for nonsense in (None, 0, 4096, "block", object()):
            with pytest.raises(TypeError):
                mr.deallocate(nonsense)  # type: ignore[arg-type]

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

    def test_the_suite_says_what_the_resource_says(self, mr: DeviceMemoryResource) -> None:
        said = self.host_accessible, self.tracks_block_uses, self.on_the_host
        assert said == (mr.is_host_accessible, mr.supports_block_use_tracking, mr.driver.name == "host")

    def test_it_is_constructed_once(self, mr: DeviceMemoryResource) -> None:
        block, before = mr.allocate(64), mr.counters
        again: Any = mr
        for arguments in ((), (mr.upstream_mr,), (HostMemoryResource(),)):
            with pytest.raises((errors.InvalidArgument, TypeError)):
                again.__init__(*arguments)
        assert (block.state, mr.counters) == ("live", before)
        mr.deallocate(block)

    def test_an_object_that_was_never_constructed_says_so_and_goes_without_a_word(
        self, mr: DeviceMemoryResource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        heard: list[object] = []
        monkeypatch.setattr(sys, "unraisablehook", heard.append)
        cls: Any = type(mr)
        unmade = [cls.__new__(cls)]
        calls: list[Callable[[Any], object]] = [
            lambda made: made.allocate(64),
            lambda made: made.reap_pending(),
            lambda made: made.bytes_outstanding,
        ]
        for call in calls:
            with pytest.raises((errors.InvalidArgument, AttributeError)):
                call(unmade[0])
        unmade.clear()
        gc.collect()
        assert heard == []

    def test_a_size_is_asked_once(self, mr: DeviceMemoryResource) -> None:
        asked: list[int] = []

        class Size:
            def __index__(self) -> int:
                asked.append(64)
                return asked[-1]

        mr.deallocate(mr.allocate(Size()))
        assert asked == [64]

    def test_memory_is_a_buffer_where_the_cpu_can_touch_it(self, mr: DeviceMemoryResource) -> None:
        block = mr.allocate(4096)
        if mr.is_host_accessible:
            assert memoryview(block).nbytes == 4096
        else:
            with pytest.raises(errors.InvalidArgument):
                memoryview(block)
        mr.deallocate(block)

    @needs("host_accessible")
    def test_a_block_that_somebody_views_cannot_be_given_back(self, mr: DeviceMemoryResource) -> None:
        block = mr.allocate(4096)
        first, second = memoryview(block), memoryview(block)
        before = mr.counters
        with pytest.raises(BufferError) as caught:
            mr.deallocate(block)
        assert isinstance(caught.value, errors.StillExported) and caught.value.exports == 2
        assert (mr.counters, block.state) == (before, "live")
        first[:] = bytes(range(256)) * 16
        first.release()
        with pytest.raises(BufferError):
            mr.deallocate(block)
        assert bytes(second) == bytes(range(256)) * 16
        second.release()
        mr.deallocate(block)
        with pytest.raises(errors.UseAfterFree):
            memoryview(block)

    @needs("host_accessible")
    def test_a_dropped_block_lives_as_long_as_its_last_view(self, mr: DeviceMemoryResource) -> None:
        view = memoryview(mr.allocate(4096))[1000:1004]
        gc.collect()
        assert mr.bytes_outstanding == 4096
        view[:] = b"kept"
        assert bytes(view) == b"kept"
        del view
        gc.collect()
        assert mr.bytes_outstanding == 0

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
