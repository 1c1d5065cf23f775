"""Owns: static plans as Python sees them: making one without the GIL, checking one, and the resource that serves one."""
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr, static_pointer_cast
from libcpp.vector cimport vector

from tensormem._core.construction cimport begin_construction
from tensormem._core.base cimport Driver, size_of
from tensormem._core.failures cimport check
from tensormem._core.native cimport Resource
from tensormem._core.native_plan cimport AbstractMemoryResource as NativeAbstract
from tensormem._core.native_plan cimport PlannedMemoryResource as NativePlanned
from tensormem._core.native_plan cimport (
    PlanItem,
    PlannedBlock,
    PlannedUsage,
    PlanOptions,
    PlanProgress,
    PlanResult,
    make_plan_watched,
    plan_is_sound,
)

from tensormem import errors
from tensormem._core import base
from tensormem.units import format_size


cdef vector[PlanItem] _items(object lifetimes) except *:
    cdef vector[PlanItem] items
    cdef PlanItem item
    for _, item.lower, item.upper, item.size in lifetimes:
        items.push_back(item)
    return items


def make_plan(lifetimes, int64_t capacity, double seconds, int64_t alignment, uint64_t seed, watch):
    """Offsets, height, bound, whether it is proven, whether it was stopped, seconds and steps, for (id, lower, upper,
    size) each. `watch(seconds, height, bound, steps)` hears of it now and then, and stops it by saying False.
    """
    cdef PlanOptions options
    cdef PlanResult result
    cdef vector[PlanItem] items = _items(lifetimes)
    raised = []
    context = (watch, raised)
    options.capacity = capacity
    options.seconds = seconds
    options.alignment = alignment
    options.seed = seed
    check(make_plan_watched(items, options, <PyObject*>context, _watch, &result))
    if raised:
        raise raised[0]
    return (list(result.offsets), result.height, result.bound, result.is_optimal, result.was_cancelled, result.seconds,
            result.steps)


cdef cbool _watch(PyObject* held, const PlanProgress* progress) noexcept with gil:
    watch, raised = <tuple>held
    try:
        PyErr_CheckSignals()
        if watch is None:
            return True
        return watch(progress.seconds, progress.height, progress.bound, progress.steps) is not False
    except BaseException as error:
        raised.append(error)
        return False


def is_sound(lifetimes, offsets, int64_t height):
    """Whether no two that live at once share a byte, and all lie below the height."""
    cdef vector[int64_t] places = offsets
    cdef vector[PlanItem] items = _items(lifetimes)
    cdef cbool sound
    with nogil:
        sound = plan_is_sound(items, places, height)
    return sound


cdef class PlannedMemoryResource(DeviceMemoryResource):
    """One block of an upstream, handed out by a `tensormem.trace.Plan`.

    The k-th allocation of a step gets the place that was planned for it, when it is as large as planned and nobody is
    there any more; what differs goes to the upstream, and is counted in `fallbacks`. Call `new_step()` when the work
    that was planned begins again.

    >>> import tensormem as tm
    >>> from tensormem.trace import Lifetime, plan
    >>> made = plan([Lifetime("a", 0, 2, 4096), Lifetime("b", 1, 3, 4096), Lifetime("c", 2, 4, 4096)])
    >>> mr = tm.mr.PlannedMemoryResource(made, tm.mr.HostMemoryResource())
    >>> a, b = mr.allocate(4096), mr.allocate(4096)
    >>> mr.deallocate(a)
    >>> c = mr.allocate(4096)
    >>> mr.arena_size, mr.planned, mr.fallbacks
    (8192, 3, 0)
    """

    cdef shared_ptr[NativePlanned] _planned
    cdef readonly object plan

    def __init__(self, plan, upstream_mr):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        cdef vector[PlannedBlock] blocks
        cdef PlannedBlock block
        if not (hasattr(plan, "lifetimes") and hasattr(plan, "offsets") and hasattr(plan, "height")):
            raise errors.InvalidArgument(f"a plan is needed, not {type(plan).__name__}")
        # A block is asked for when its life begins; what begins together keeps the order of the plan.
        for lifetime, offset in sorted(zip(plan.lifetimes, plan.offsets, strict=True), key=lambda each: each[0].lower):
            block.offset = offset
            block.nbytes = lifetime.size
            blocks.push_back(block)
        self.plan = plan
        check(NativePlanned.create(upstream._owner, blocks, plan.height, plan.alignment, &self._planned))
        self.adopt(static_pointer_cast[Resource, NativePlanned](self._planned), upstream.driver, upstream)

    def new_step(self):
        """Begin the plan from the front. Blocks that are still out keep their places."""
        self._check_open()
        self._planned.get().new_step()

    def reset(self):
        """The same as `new_step`."""
        self.new_step()

    @property
    def arena_size(self):
        """Bytes that the plan takes from the upstream."""
        return self.plan.height

    @property
    def planned(self):
        """How many blocks got the place that was planned for them."""
        return self._usage().planned

    @property
    def fallbacks(self):
        """How many blocks went to the upstream."""
        return self._usage().fallbacks

    @property
    def position(self):
        """Which allocation of the plan comes next."""
        return self._usage().position

    def describe(self):
        """One line about the plan and how well it is followed."""
        return (f"PlannedMemoryResource: {format_size(self.arena_size)} planned, {self.planned} blocks as planned, "
                f"{self.fallbacks} not")

    cdef PlannedUsage _usage(self) except *:
        self._check_open()
        return self._planned.get().usage()


cdef class AbstractMemoryResource(DeviceMemoryResource):
    """Addresses without memory: for asking what a stack of resources would do, at any size, on any machine.

    Nothing may touch what it hands out. `capacity` is how much there is of it.

    >>> import tensormem as tm
    >>> leaf = tm.mr.AbstractMemoryResource("80GiB")
    >>> pool = tm.mr.PoolMemoryResource(leaf)
    >>> block = pool.allocate("60GiB")
    >>> leaf.bytes_outstanding >= 60 << 30
    True
    """

    cdef shared_ptr[NativeAbstract] _abstract

    def __init__(self, capacity=None):
        begin_construction(self._construction, self)
        cdef Driver driver = base.host()
        cdef uint64_t nbytes = 0x7FFFFFFFFFFFFFFF if capacity is None else size_of(capacity)
        self._abstract = make_shared[NativeAbstract](driver.native[0], nbytes)
        self.adopt(static_pointer_cast[Resource, NativeAbstract](self._abstract), driver, None)

    @property
    def capacity(self):
        """How many bytes there are; None when there is no end to them."""
        self._check_open()
        cdef uint64_t nbytes = self._abstract.get().capacity()
        return None if nbytes == 0x7FFFFFFFFFFFFFFF else nbytes

    @property
    def peak_bytes(self):
        """The most bytes that were taken of it at once."""
        self._check_open()
        return self._abstract.get().peak_bytes()
