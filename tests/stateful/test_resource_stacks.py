"""Random stacks of resources against a simple model: blocks do not overlap, keep their alignment and their bytes on
whatever streams they are used, are counted exactly, and everything comes back."""

import ctypes
import gc
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stateful.stacks import StackPlan, stack_plans
from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing.resources import Gate

LANES = 4  # the default stream and three others

sizes = st.one_of(
    st.sampled_from([1, 255, 256, 257, 4096, 65536, 1 << 20, 1 << 22]),
    st.integers(0, 22).flatmap(lambda bits: st.integers(1 << bits, min(2 << bits, 1 << 22))),
)
alignments = st.sampled_from([None, 1, 8, 256, 512, 4096, 65536])
lanes = st.integers(0, LANES - 1)
picks = st.integers(0, 1 << 16)


@dataclass
class Live:
    """What the model knows of a block that is out."""

    block: mr.DeviceBlock
    value: int  # the byte it was filled with last

    def overlaps(self, other: mr.DeviceBlock) -> bool:
        mine = self.block
        return mine.ptr < other.ptr + other.nbytes and other.ptr < mine.ptr + mine.nbytes


class ResourceStacks(RuleBasedStateMachine):
    @initialize(plan=stack_plans())
    def build(self, plan: StackPlan) -> None:
        self.plan = plan
        self.mr, self.leaf, self.heap = plan.build()
        self.streams = [Stream.default(host()), *(Stream(host()) for _ in range(LANES - 1))]
        self.gates: dict[int, Gate] = {}  # closed ones, by lane
        self.live: list[Live] = []
        self.ended: list[mr.DeviceBlock] = []  # given back, and perhaps not yet free
        self.generations: set[int] = set()
        self.broken: list[str] = []  # what work on the streams found to be wrong
        self.elsewhere = mr.HostMemoryResource()

    # --- Allocating and giving back ---

    @rule(nbytes=sizes, alignment=alignments, lane=lanes, first_user=lanes)
    def allocate(self, nbytes: int, alignment: int | None, lane: int, first_user: int) -> None:
        if self.plan.may_refuse and (lane == 0 or not self.plan.grows_on_the_default_stream_only):
            self.open_gates()  # it may wait for other streams
        before = self.mr.bytes_outstanding
        try:
            block = self.mr.allocate(nbytes, self.streams[lane], alignment=alignment, tag=f"lane {lane}")
        except (errors.OutOfMemory, errors.OutOfBudget) as refusal:
            assert self.plan.may_refuse, refusal
            assert self.mr.bytes_outstanding <= before
            return
        assert (block.nbytes, block.tag, block.state) == (nbytes, f"lane {lane}", "live")
        assert block.ptr % (alignment or 256) == 0
        assert block.generation not in self.generations
        assert not any(live.overlaps(block) for live in self.live), "two owners of one byte"
        self.generations.add(block.generation)
        self.live.append(Live(block, 0))
        self.write(self.live[-1], first_user)

    @precondition(lambda self: self.live)
    @rule(pick=picks, lane=lanes, reader=lanes)
    def deallocate(self, pick: int, lane: int, reader: int) -> None:
        gone = self.live.pop(pick % len(self.live))
        self.read(gone, reader)
        self.mr.deallocate(gone.block, self.streams[lane])
        assert gone.block.state in ("retired", "freed")
        self.ended.append(gone.block)

    @precondition(lambda self: self.live)
    @rule(pick=picks, reader=lanes)
    def drop(self, pick: int, reader: int) -> None:
        self.open_gates()
        gone = self.live.pop(pick % len(self.live))
        self.read(gone, reader)
        self.synchronize()
        before = self.mr.bytes_outstanding
        nbytes = gone.block.nbytes
        del gone
        self.mr.reap_pending()
        assert self.mr.bytes_outstanding <= before - nbytes

    # --- Bad input changes nothing ---

    @precondition(lambda self: self.ended)
    @rule(pick=picks, lane=lanes)
    def free_twice(self, pick: int, lane: int) -> None:
        before = self.mr.bytes_outstanding
        with pytest.raises(errors.UseAfterFree):
            self.mr.deallocate(self.ended[pick % len(self.ended)], self.streams[lane])
        assert self.mr.bytes_outstanding == before

    @rule(lane=lanes)
    def free_a_foreign_block(self, lane: int) -> None:
        foreign, before = self.elsewhere.allocate(64), self.mr.bytes_outstanding
        with pytest.raises(errors.ForeignBlock):
            self.mr.deallocate(foreign, self.streams[lane])
        assert (self.mr.bytes_outstanding, foreign.state) == (before, "live")

    # --- Using ---

    @precondition(lambda self: self.live)
    @rule(pick=picks, lane=lanes)
    def write_again(self, pick: int, lane: int) -> None:
        self.write(self.live[pick % len(self.live)], lane)

    @precondition(lambda self: self.live)
    @rule(pick=picks, lane=lanes)
    def read_again(self, pick: int, lane: int) -> None:
        self.read(self.live[pick % len(self.live)], lane)

    def write(self, live: Live, lane: int) -> None:
        self.prepare(live, lane, "write")
        live.value = live.value % 255 + 1
        host().fill(live.block, live.value, 1, (live.block.nbytes, 1, 1), self.streams[lane])
        self.mr.finish_block_use(live.block, self.streams[lane], "write")

    def read(self, live: Live, lane: int) -> None:
        self.prepare(live, lane, "read")
        self.streams[lane].launch(self.expect, live.block.ptr, live.block.nbytes, live.value)
        self.mr.finish_block_use(live.block, self.streams[lane], "read")

    def prepare(self, live: Live, lane: int, access: str) -> None:
        if lane == 0:
            self.open_gates()  # on the default stream, it waits
        self.mr.prepare_block_use(live.block, self.streams[lane], access)

    def expect(self, address: int, nbytes: int, value: int) -> None:
        if ctypes.string_at(address, nbytes) != bytes([value]) * nbytes:
            self.broken.append(f"{nbytes} bytes at {address:#x} are not all {value}")

    # --- Around it ---

    @rule(lane=st.integers(1, LANES - 1))
    def close_gate(self, lane: int) -> None:
        if lane not in self.gates:
            self.gates[lane] = Gate()
            self.gates[lane].hold(self.streams[lane])

    @rule()
    def open_gates(self) -> None:
        for lane in list(self.gates):
            self.gates.pop(lane).open()

    @rule(lane=st.integers(1, LANES - 1))
    def replace_stream(self, lane: int) -> None:
        self.open_gates()
        self.streams[lane].close()
        self.streams[lane] = Stream(host())

    @rule()
    def reap(self) -> None:
        self.mr.reap_pending()

    @rule(keep=st.sampled_from([0, 1 << 20]))
    def trim(self, keep: int) -> None:
        for resource in self.chain():
            if isinstance(resource, mr.PoolMemoryResource | mr.FixedSizeMemoryResource):
                resource.trim(keep)
            elif isinstance(resource, mr.ArenaMemoryResource):
                resource.trim()

    @rule(limit=st.sampled_from([0, 1000, 1 << 20, 1 << 23, 1 << 30]))
    def change_limits(self, limit: int) -> None:
        for resource in self.chain():
            if isinstance(resource, mr.LimitingResourceAdaptor):
                resource.allocation_limit = limit

    # --- What always holds ---

    @invariant()
    def nothing_broke(self) -> None:
        if hasattr(self, "broken"):
            assert self.broken == []

    @rule()
    def count(self) -> None:
        self.mr.reap_pending()
        self.ended = [block for block in self.ended if block.state != "freed"] + self.ended[-5:]
        waiting = {block.generation: block.nbytes for block in self.ended if block.state == "retired"}
        assert self.mr.bytes_outstanding == self.live_bytes() + sum(waiting.values())

    def live_bytes(self) -> int:
        return sum(live.block.nbytes for live in self.live)

    def chain(self) -> list[mr.DeviceMemoryResource]:
        found: list[mr.DeviceMemoryResource] = []
        each: mr.DeviceMemoryResource | None = self.mr
        while each is not None:
            found.append(each)
            each = each.upstream_mr
        return found

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.synchronize()

    def teardown(self) -> None:
        if not hasattr(self, "plan"):
            return
        self.open_gates()
        while self.live:
            self.deallocate(0, 0, 0)
        self.synchronize()
        self.mr.reap_pending()
        assert (self.mr.bytes_outstanding, self.broken) == (0, [])
        del self.mr, self.ended
        gc.collect()
        assert (self.leaf.bytes_outstanding, self.heap.out) == (0, {})
        for stream in self.streams[1:]:
            stream.close()


TestResourceStacks = ResourceStacks.TestCase
TestResourceStacks.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
