"""Owns: the part of the resource suite that asks what every maker of memory keeps: tag, limit, report, trace, count,
in use, reach, wait, fork, the k-th failure, the end of the process.

Must not know: any particular resource.
"""

from contextlib import suppress
from pathlib import Path
from threading import Event, Timer

import pytest

from tensormem import errors, trace
from tensormem._core import space_of
from tensormem.mr import DeviceMemoryResource, LimitingResourceAdaptor, memory_stats, tag
from tensormem.streams import Stream
from tensormem.testing.applicability import needs
from tensormem.testing.child_process import end_of_process, forked_child
from tensormem.testing.faults import each_system_call_fails
from tensormem.testing.held_call import held_call
from tensormem.testing.resource_suite import ResourceSuite

__all__ = ["PromiseConformance"]


class PromiseConformance(ResourceSuite):
    """What every maker of memory keeps, asked of a resource."""

    def test_a_limit_over_it_counts_to_the_byte_and_gets_all_of_it_back(self, mr: DeviceMemoryResource) -> None:
        """Charged while it is out, and not a byte afterwards."""
        limited = LimitingResourceAdaptor(mr, "1MiB")
        block = limited.allocate(1000)
        assert (limited.allocated_bytes, limited.remaining) == (1000, (1 << 20) - 1000)
        limited.deallocate(block)
        limited.reap_pending()
        assert limited.allocated_bytes == 0

    def test_a_shortage_over_it_has_a_report_that_names_the_tag(self, mr: DeviceMemoryResource) -> None:
        """Who was asked, for what, and what would help."""
        limited = LimitingResourceAdaptor(mr, 100)
        with tag("activations"), pytest.raises(errors.OutOfBudget) as caught:
            limited.allocate(1000)
        report = caught.value.report()
        assert (report.requested, report.tag) == (1000, "activations")
        assert len(report.layers) >= 2 and report.hints

    def test_a_trace_has_every_block_once_with_its_tag_and_space(
        self, mr: DeviceMemoryResource, tmp_path: Path
    ) -> None:
        """One beginning and one end for what the caller asked."""
        mr.deallocate(mr.allocate(1000))
        with trace(tmp_path / "run.tmt"), tag("crossing"):
            mr.deallocate(mr.allocate(1000))
            mr.reap_pending()
        with trace.open(tmp_path / "run.tmt") as recorded:
            lives = [life for life in recorded.blocks() if life.tag == "crossing"]
        assert [(life.nbytes, life.space) for life in lives] == [(1000, space_of(mr))]
        assert lives[0].end_ns is not None

    def test_a_tag_that_is_given_is_stronger_than_the_scope(self, mr: DeviceMemoryResource) -> None:
        """On the block, whatever is in force around."""
        with tag("around"):
            given, named = mr.allocate(1000, tag="given"), mr.allocate(1000)
        assert (given.tag, named.tag) == ("given", "around")
        mr.deallocate(given)
        mr.deallocate(named)

    def test_a_block_that_a_drivers_call_is_given_is_in_use_until_it_returns(self, mr: DeviceMemoryResource) -> None:
        """Then, and when the call refuses, it can be freed; afterwards no call takes it."""
        block = mr.allocate(1000)
        for box in ((1000, 1, 1), (0, 1, 1)):
            with suppress(errors.TensormemError):
                mr.driver.fill(block, 0, 1, box)
            assert block.export_count == 0
        Stream.default(mr.driver).synchronize()
        mr.deallocate(block)
        mr.reap_pending()
        with pytest.raises(errors.UseAfterFree):
            mr.driver.fill(block, 0, 1, (1000, 1, 1))

    @needs("host_accessible")
    def test_it_is_not_freed_under_a_view(self, mr: DeviceMemoryResource) -> None:
        """`BufferError`, and nothing has changed."""
        block = mr.allocate(1000)
        with memoryview(block), pytest.raises(BufferError):
            mr.deallocate(block)
        assert block.state == "live"
        mr.deallocate(block)

    @needs("cpu_cannot_touch")
    def test_memory_that_the_cpu_cannot_touch_is_refused_to_it(self, mr: DeviceMemoryResource) -> None:
        """By every way in which the CPU would."""
        block = mr.allocate(1000)
        with pytest.raises((BufferError, errors.TensormemError)):
            memoryview(block)
        mr.deallocate(block)

    def test_memory_whose_address_a_call_was_given_as_a_number_is_in_use(self, mr: DeviceMemoryResource) -> None:
        """`BufferError` until the call returns, and nothing has changed."""
        block = mr.allocate(4096)
        with held_call(mr.driver, int(block) + 100):
            with pytest.raises(BufferError):
                mr.deallocate(block)
            assert block.state == "live"
        mr.deallocate(block)

    @needs("tracks_block_uses", "on_the_host")
    def test_waiting_for_another_streams_use_lets_other_threads_run(
        self, mr: DeviceMemoryResource, stream: Stream
    ) -> None:
        """With the GIL or a lock held, nobody would open the gate."""
        block, gate = mr.allocate(1000), Event()
        mr.prepare_block_use(block, stream, "write")
        stream.launch(gate.wait)
        mr.finish_block_use(block, stream, "write")

        def use_and_open() -> None:
            mr.deallocate(mr.allocate(64))
            gate.set()

        opener = Timer(0, use_and_open)
        opener.start()
        mr.prepare_block_use(block, Stream.default(mr.driver), "read")
        assert gate.is_set()
        opener.join()
        mr.deallocate(block)

    def test_a_forked_child_can_use_it_or_is_told_and_the_parent_keeps_it(self, mr: DeviceMemoryResource) -> None:
        """By an error of ours, at once; nothing hangs."""
        block = mr.allocate(1000)

        def use() -> None:
            mr.deallocate(mr.allocate(1000))
            mr.reap_pending()

        assert forked_child(use) in ("done", "told")
        assert block.state == "live"
        mr.deallocate(block)

    @needs("on_the_host", "makes_system_calls")
    def test_whichever_system_call_fails_nothing_is_lost(self) -> None:
        """It is refused by name or goes well, and the statistics are what they were."""
        self._make_and_use()
        before, runs = memory_stats()["current_bytes"], 0
        for raised in each_system_call_fails(self._make_and_use):
            assert raised is None or isinstance(raised, errors.TensormemError | OSError | MemoryError), raised
            del raised
            runs += 1
            assert memory_stats()["current_bytes"] == before
        assert runs > 0, "makes_system_calls is declared wrongly"

    def _make_and_use(self) -> None:
        mr = self.make()
        mr.deallocate(mr.allocate(1 << 20))
        mr.reap_pending()

    @needs("on_the_host")
    def test_a_process_that_ends_with_blocks_out_ends_well(self) -> None:
        """Whoever still has work or memory then: no crash, no hang, not a word."""
        end_of_process(self, "_left_open")

    def _left_open(self) -> object:
        mr = self.make()
        stream = Stream(mr.driver)
        block = mr.allocate(1000, stream)
        stream.launch(int)
        return mr, block, stream, mr.allocate(1 << 20)

    def test_the_statistics_of_the_process_count_it_once(self, mr: DeviceMemoryResource) -> None:
        """However many resources it passes through; one that puts guards around a block adds those."""
        before = memory_stats()["current_bytes"]
        block = mr.allocate(1000)
        counted = memory_stats()["current_bytes"] - before
        mr.deallocate(block)
        assert 1000 <= counted < 2000
