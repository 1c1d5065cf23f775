"""Resources written in Python, anywhere in a stack."""

import gc
from typing import SupportsIndex
from weakref import ref

import pytest

from support.hooks import unraisable
from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream, StreamLike


class Recording(mr.DeviceMemoryResource):
    """Notes what passes."""

    def __init__(self, upstream: mr.DeviceMemoryResource) -> None:
        super().__init__(upstream)
        self.heard: list[tuple[str, int, int]] = []

    def allocate(
        self,
        nbytes: SupportsIndex | str,
        stream: StreamLike | None = None,
        *,
        alignment: SupportsIndex | None = None,
        tag: str | None = None,
    ) -> mr.DeviceBlock:
        block = super().allocate(nbytes, stream, alignment=alignment, tag=tag)
        self.heard.append(("allocate", block.nbytes, block.generation))
        return block

    def deallocate(self, block: mr.DeviceBlock, stream: StreamLike | None = None) -> None:
        super().deallocate(block, stream)
        self.heard.append(("deallocate", block.nbytes, block.generation))


class Failing(mr.DeviceMemoryResource):
    """Raises what it is told to raise."""

    error: BaseException | None = None

    def deallocate(self, block: mr.DeviceBlock, stream: StreamLike | None = None) -> None:
        if self.error is not None:
            raise self.error
        super().deallocate(block, stream)


class Giving(mr.DeviceMemoryResource):
    """Gives whatever it was told to give, instead of a block of its own."""

    gift: object = None

    def allocate(self, *args: object, **kwargs: object) -> mr.DeviceBlock:
        return self.gift  # type: ignore[return-value]


# --- Every block passes through the override ---


def test_blocks_from_above_pass_through_the_override() -> None:
    recording = Recording(mr.HostMemoryResource())
    top = mr.StatisticsResourceAdaptor(mr.LimitingResourceAdaptor(recording, "1MiB"))
    block = top.allocate(100, alignment=4096, tag="seen")
    assert (block.ptr % 4096, block.tag, block.mr) == (0, "seen", top)
    top.deallocate(block)
    assert recording.heard == [("allocate", 100, block.generation), ("deallocate", 100, block.generation)]


def test_a_dropped_block_passes_through_the_override() -> None:
    recording = Recording(mr.HostMemoryResource())
    block = recording.allocate(100)
    generation = block.generation
    del block
    assert recording.heard == [("allocate", 100, generation), ("deallocate", 100, generation)]
    assert recording.bytes_outstanding == 0


def test_a_pool_takes_and_gives_back_its_chunks_through_the_override() -> None:
    recording = Recording(mr.HostMemoryResource())
    pool = mr.PoolMemoryResource(recording, "1MiB")
    pool.deallocate(pool.allocate(100))
    assert [(what, nbytes) for what, nbytes, _ in recording.heard] == [("allocate", 1 << 20)]
    del pool
    gc.collect()
    assert [(what, nbytes) for what, nbytes, _ in recording.heard] == [("allocate", 1 << 20), ("deallocate", 1 << 20)]


def test_streams_reach_the_override() -> None:
    seen: list[int | None] = []

    class Looking(mr.DeviceMemoryResource):
        def deallocate(self, block: mr.DeviceBlock, stream: StreamLike | None = None) -> None:
            seen.append(stream.id if isinstance(stream, Stream) else None)
            super().deallocate(block, stream)

    looking = Looking(mr.HostMemoryResource())
    top = mr.StatisticsResourceAdaptor(looking)
    with Stream(host()) as stream:
        block = top.allocate(100, stream)
        assert block.alloc_stream == stream.id
        top.deallocate(block, stream)
        assert seen == [stream.id]


def test_an_override_may_keep_blocks_for_later() -> None:
    class Caching(mr.DeviceMemoryResource):
        def __init__(self, upstream: mr.DeviceMemoryResource) -> None:
            super().__init__(upstream)
            self.cache: list[mr.DeviceBlock] = []

        def allocate(
            self,
            nbytes: SupportsIndex | str,
            stream: StreamLike | None = None,
            *,
            alignment: SupportsIndex | None = None,
            tag: str | None = None,
        ) -> mr.DeviceBlock:
            if self.cache and self.cache[-1].nbytes == nbytes:
                return self.cache.pop()
            return super().allocate(nbytes, stream, alignment=alignment, tag=tag)

        def deallocate(self, block: mr.DeviceBlock, stream: StreamLike | None = None) -> None:
            self.cache.append(block)

    leaf = mr.HostMemoryResource()
    caching = Caching(leaf)
    top = mr.LimitingResourceAdaptor(caching, "1MiB")
    first = top.allocate(1000)
    address = first.ptr
    top.deallocate(first)
    assert (len(caching.cache), leaf.bytes_outstanding) == (1, 1000)
    second = top.allocate(1000)
    assert (second.ptr, caching.cache) == (address, [])
    del first, second, top, caching
    gc.collect()
    assert leaf.bytes_outstanding == 0


# --- Exceptions ---


@pytest.mark.parametrize("error", [OSError("no"), KeyboardInterrupt(), SystemExit(3)], ids=lambda error: repr(error))
def test_an_exception_over_a_dropped_block_reaches_the_hook_and_the_block_stays_counted(error: BaseException) -> None:
    failing = Failing(mr.HostMemoryResource())
    block = failing.allocate(100)
    failing.error = error
    with unraisable() as heard:
        del block
    assert heard == [error]
    assert failing.bytes_outstanding == 100


def test_an_override_that_does_nothing_does_not_leak_dropped_blocks() -> None:
    class Deaf(mr.DeviceMemoryResource):
        def deallocate(self, block: mr.DeviceBlock, stream: StreamLike | None = None) -> None:
            pass

    leaf = mr.HostMemoryResource()
    deaf = Deaf(leaf)
    block = deaf.allocate(100)
    deaf.deallocate(block)
    assert (block.state, leaf.bytes_outstanding) == ("live", 100)
    del block
    assert leaf.bytes_outstanding == 0
    pool = mr.PoolMemoryResource(deaf)
    pool.deallocate(pool.allocate(100))
    pool.trim()
    assert leaf.bytes_outstanding == 0


def test_an_exception_in_a_direct_call_is_the_callers() -> None:
    failing = Failing(mr.HostMemoryResource())
    block = failing.allocate(100)
    failing.error = OSError("no")
    with pytest.raises(OSError, match="no"):
        failing.deallocate(block)
    assert block.state == "live"
    failing.error = None
    failing.deallocate(block)


def test_an_exception_inside_a_stack_is_the_cause_of_a_failure() -> None:
    failing = Failing(mr.HostMemoryResource())
    top = mr.LimitingResourceAdaptor(failing, 1000)
    block = top.allocate(100)
    failing.error = OSError("no")
    with pytest.raises(errors.CallbackFailed) as caught:
        top.deallocate(block)
    assert caught.value.__cause__ is failing.error
    assert (block.state, top.bytes_outstanding) == ("live", 100)
    failing.error = None
    top.deallocate(block)
    assert top.bytes_outstanding == 0


def test_an_error_of_ours_passes_a_stack_as_it_is() -> None:
    class Refusing(mr.DeviceMemoryResource):
        def allocate(self, *args: object, **kwargs: object) -> mr.DeviceBlock:
            raise errors.OutOfBudget(1, 2, 3, 4)

    with pytest.raises(errors.OutOfBudget) as caught:
        mr.StatisticsResourceAdaptor(Refusing(mr.HostMemoryResource())).allocate(1)
    assert caught.value.args == (1, 2, 3, 4)


# --- Wrong answers ---


@pytest.mark.parametrize(
    "gift",
    [None, 0, 4096, "block", object(), [1]],
    ids=lambda gift: type(gift).__name__ if type(gift) is object else repr(gift),
)
def test_what_is_no_block_is_refused_inside_a_stack(gift: object) -> None:
    giving = Giving(mr.HostMemoryResource())
    giving.gift = gift
    top = mr.LimitingResourceAdaptor(giving, 1000)
    with pytest.raises(errors.CallbackFailed) as caught:
        top.allocate(100)
    assert "must give a DeviceBlock" in str(caught.value.__cause__)
    assert top.bytes_outstanding == 0


def test_a_block_that_is_too_small_stale_or_crooked_is_refused() -> None:
    leaf = mr.HostMemoryResource()
    giving = Giving(mr.HostMemoryResource())
    pool = mr.PoolMemoryResource(giving)
    stale = leaf.allocate(1 << 21)
    leaf.deallocate(stale)
    crooked = mr.PoolMemoryResource(leaf, "8MiB")
    shift = crooked.allocate((1 << 20) + 256)
    for gift in (leaf.allocate(64), stale, crooked.allocate(1 << 21)):
        giving.gift = gift
        with pytest.raises(errors.CallbackFailed) as caught:
            pool.allocate(100)
        assert isinstance(caught.value.__cause__, ValueError)
    assert (pool.pool_size, shift.state) == (0, "live")


def test_one_block_is_not_taken_twice() -> None:
    giving = Giving(mr.HostMemoryResource())
    giving.gift = mr.HostMemoryResource().allocate(1 << 21, alignment=4096)
    pool = mr.PoolMemoryResource(giving)
    first = pool.allocate(1 << 20)
    with pytest.raises(errors.CallbackFailed):
        pool.allocate(1 << 21)
    assert first.state == "live"


# --- Being made, and going away ---


def test_a_resource_needs_an_upstream() -> None:
    class PassingOn(mr.DeviceMemoryResource):
        """Changes nothing."""

    with pytest.raises(TypeError, match="upstream"):
        PassingOn()
    with pytest.raises(TypeError):
        mr.DeviceMemoryResource(mr.HostMemoryResource())
    for nonsense in (7, "pool", mr.HostMemoryResource):
        with pytest.raises(errors.InvalidArgument, match="an upstream is a memory resource"):
            PassingOn(nonsense)  # type: ignore[arg-type]


def test_a_resource_that_was_never_initialised_says_so() -> None:
    class Forgetful(mr.DeviceMemoryResource):
        def __init__(self) -> None:
            pass  # without super().__init__()

    forgetful, block = Forgetful(), mr.HostMemoryResource().allocate(1)
    for call in (
        lambda: forgetful.allocate(1),
        lambda: forgetful.deallocate(block),
        lambda: forgetful.bytes_outstanding,
        lambda: forgetful.counters,
        forgetful.reap_pending,
        lambda: forgetful.prepare_block_use(block, None, "read"),
        lambda: forgetful.launch(None),
        lambda: mr.PoolMemoryResource(forgetful),
    ):
        with pytest.raises(errors.InvalidArgument, match="never initialised"):
            call()
    assert "never initialised" in repr(forgetful)


def test_a_resource_in_a_cycle_with_its_own_blocks_is_collected() -> None:
    leaf = mr.HostMemoryResource()
    recording = Recording(leaf)
    recording.__dict__["cycle"] = [recording, recording.allocate(100)]
    gone = ref(recording)
    del recording
    gc.collect()
    assert (gone(), leaf.bytes_outstanding) == (None, 0)


def test_a_stack_in_a_cycle_gives_everything_back() -> None:
    leaf = mr.HostMemoryResource()
    recording = Recording(leaf)
    pool = mr.PoolMemoryResource(recording)
    recording.__dict__["cycle"] = [pool, pool.allocate(100)]
    del recording, pool
    gc.collect()
    assert leaf.bytes_outstanding == 0


def test_a_callback_may_refer_to_its_own_adaptor_without_a_leak() -> None:
    class Cache:
        def __init__(self) -> None:
            self.retrying = mr.FailureCallbackResourceAdaptor(mr.HostMemoryResource(), self.evict)
            self.watched = mr.PressureResourceAdaptor(mr.HostMemoryResource(), self.notice, warn=1, critical=2)

        def evict(self, nbytes: int) -> bool:
            return False

        def notice(self, level: str, used: int) -> None:
            pass

    gone = ref(Cache())
    gc.collect()
    assert gone() is None


def test_an_upstream_that_is_dropped_first_stays_as_long_as_it_is_needed() -> None:
    leaf = mr.HostMemoryResource()
    middle = Recording(leaf)
    top = mr.LimitingResourceAdaptor(middle, "1MiB")
    gone = ref(middle)
    block = top.allocate(100)
    del middle, top
    gc.collect()
    assert (block.state, gone() is None) == ("live", False)
    block.mr.deallocate(block)
    del block
    gc.collect()
    assert (gone(), leaf.bytes_outstanding) == (None, 0)
