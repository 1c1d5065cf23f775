"""Owns: what every memory resource over an upstream promises when that upstream raises, is short, shrinks or goes.

A leaf has no upstream; for it these tests have nothing to say and pass.
Must not know: any particular resource.
"""

import gc
import weakref
from typing import SupportsIndex

import pytest

from tensormem import errors
from tensormem.mr import (
    DeviceBlock,
    DeviceMemoryResource,
    FaultInjectionResourceAdaptor,
    HostMemoryResource,
    LimitingResourceAdaptor,
)
from tensormem.streams import StreamLike
from tensormem.testing.applicability import needs
from tensormem.testing.resource_suite import ResourceSuite

__all__ = ["Moody", "UpstreamConformance"]


class Moody(DeviceMemoryResource):
    """An upstream that raises what it is told to."""

    on_allocate: BaseException | None = None
    on_deallocate: BaseException | None = None

    def allocate(
        self,
        nbytes: SupportsIndex | str,
        stream: StreamLike | None = None,
        *,
        alignment: SupportsIndex | None = None,
        tag: str | None = None,
    ) -> DeviceBlock:
        """Raise, or pass on."""
        if self.on_allocate is not None:
            raise self.on_allocate
        return super().allocate(nbytes, stream, alignment=alignment, tag=tag)

    def deallocate(self, block: DeviceBlock, stream: StreamLike | None = None) -> None:
        """Raise, or pass on."""
        if self.on_deallocate is not None:
            raise self.on_deallocate
        super().deallocate(block, stream)


class UpstreamConformance(ResourceSuite):
    """What every resource over an upstream promises about it. `ResourceConformance` has it all."""

    @needs("stands_on_an_upstream")
    def test_an_upstream_that_raises_is_told_and_nothing_is_taken(self) -> None:
        leaf = HostMemoryResource()
        upstream = Moody(leaf)
        mr = self.make_over(upstream)
        upstream.on_allocate = OSError("the cable is out")
        before = mr.counters
        with pytest.raises(errors.CallbackFailed) as caught:
            mr.allocate(4096)
        assert caught.value.__cause__ is upstream.on_allocate
        assert (mr.bytes_outstanding, mr.counters, leaf.bytes_outstanding) == (0, before, 0)
        upstream.on_allocate = None
        self.use_and_drop(mr)
        del mr
        gc.collect()
        assert leaf.bytes_outstanding == 0

    @needs("stands_on_an_upstream")
    def test_an_upstream_that_has_no_memory_is_out_of_memory(self) -> None:
        upstream = Moody(HostMemoryResource())
        mr = self.make_over(upstream)
        upstream.on_allocate = MemoryError("sold out")
        with pytest.raises(MemoryError):
            mr.allocate(4096)
        assert mr.bytes_outstanding == 0
        upstream.on_allocate = None
        self.use_and_drop(mr)

    @needs("stands_on_an_upstream")
    def test_an_upstream_that_takes_nothing_back_gets_it_later(self) -> None:
        leaf = HostMemoryResource()
        upstream = Moody(leaf)
        mr = self.make_over(upstream)
        block = mr.allocate(4096)
        upstream.on_deallocate = OSError("the cable is out")
        try:
            mr.deallocate(block)
        except errors.CallbackFailed as error:
            assert error.__cause__ is upstream.on_deallocate
            assert (block.state, mr.bytes_outstanding) == ("live", 4096)
            upstream.on_deallocate = None
            mr.deallocate(block)
        upstream.on_deallocate = None
        assert (block.state, mr.bytes_outstanding) == ("freed", 0)
        del block, mr
        gc.collect()
        assert leaf.bytes_outstanding == 0

    @needs("stands_on_an_upstream")
    def test_whichever_upstream_allocation_fails_nothing_is_lost(self) -> None:
        nth, failed = 0, True
        while failed:
            nth += 1
            leaf = HostMemoryResource()
            faults = FaultInjectionResourceAdaptor(leaf, nth=nth)
            mr = self.make_over(faults)
            held = []
            for nbytes in (100, 5000, 1_000_000, 300, 1 << 20):
                try:
                    held.append(mr.allocate(nbytes))
                except MemoryError:
                    assert faults.injected_faults == 1
            assert mr.bytes_outstanding == sum(block.nbytes for block in held)
            failed = faults.injected_faults == 1
            del held, mr
            gc.collect()
            assert leaf.bytes_outstanding == 0
        assert nth > 1, "the resource does not get its memory from its upstream"

    @needs("stands_on_an_upstream")
    def test_an_upstream_that_is_dropped_first_serves_until_the_last_block(self) -> None:
        upstream = HostMemoryResource()
        gone = weakref.ref(upstream)
        mr = self.make_over(upstream)
        block = mr.allocate(4096)
        del upstream
        gc.collect()
        with memoryview(block) as view:
            view[:] = bytes(4096)
        mr.deallocate(block)
        self.use_and_drop(mr)
        del block, mr
        gc.collect()
        assert gone() is None

    @needs("stands_on_an_upstream")
    def test_a_limit_lowered_below_the_use_takes_nothing_away(self) -> None:
        budget = LimitingResourceAdaptor(HostMemoryResource(), "512MiB")
        mr = self.make_over(budget)
        block = mr.allocate(4096)
        budget.allocation_limit = 1
        more = []
        with pytest.raises(MemoryError):
            while True:  # until what it has already is used up
                more.append(mr.allocate("512KiB"))
        assert {each.state for each in [block, *more]} == {"live"}
        assert mr.bytes_outstanding == 4096 + sum(each.nbytes for each in more)
        del more
        mr.deallocate(block)
        budget.allocation_limit = 512 << 20
        self.use_and_drop(mr)
        del block, mr
        gc.collect()
        assert budget.remaining == budget.allocation_limit

    @needs("stands_on_an_upstream")
    def test_a_block_of_the_upstream_is_foreign(self) -> None:
        upstream = HostMemoryResource()
        mr = self.make_over(upstream)
        theirs = upstream.allocate(64)
        with pytest.raises(errors.ForeignBlock):
            mr.deallocate(theirs)
        assert (theirs.state, upstream.bytes_outstanding) == ("live", 64)
        upstream.deallocate(theirs)

    @staticmethod
    def use_and_drop(mr: DeviceMemoryResource) -> None:
        """It works as if nothing had been."""
        blocks = [mr.allocate(nbytes) for nbytes in (1, 4096, 1 << 20)]
        assert {block.state for block in blocks} == {"live"}
        mr.deallocate(blocks.pop())
        del blocks
        gc.collect()
        mr.reap_pending()
        assert mr.bytes_outstanding == 0
