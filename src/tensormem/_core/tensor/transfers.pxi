"""Owns: copying the elements of one tensor into another of the same shape: by the CPU, or by a driver in boxes; and what
is told of a copy. The common case, two tensors of main memory, is done here at once; other routes are chosen above, by `tensormem.copy`. Must not know: spaces. The caller keeps both tensors alive until the
stream has passed.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp.utility cimport move

from tensormem._core.construction cimport Construction, begin_construction
from tensormem._core.base cimport Driver, Event, Stream, borrow_stream, report_unraisable, stream_id
from tensormem._core.failures cimport check
from tensormem._core.native cimport Driver as NativeDriver
from tensormem._core.native cimport Access, Status, StreamId
from tensormem._core.native_gpu cimport share_streams
from tensormem._core.native_tensor cimport CopyBox, CopyPlan, StridedPlace, as_box, plan_copy, run_on_host
from tensormem._core.native_trace cimport report_copy
from tensormem._core.resource cimport DeviceBlock, DeviceMemoryResource

from tensormem import errors

# Below this, letting go of the GIL costs more than the copy.
cdef uint64_t _QUICK = 1 << 14


cdef extern from *:
    """
    #include "tensor/copy_plan.hpp"
    #include "tensor/host_copy.hpp"
    static void tm_run_and_drop(void* plan) {
      auto* mine = static_cast<tensormem::CopyPlan*>(plan);
      tensormem::run_on_host(*mine);
      delete mine;
    }
    """
    void tm_run_and_drop(void* plan) noexcept nogil


@cython.final
@cython.freelist(32)
cdef class TransferReport:
    """How a copy went: its size, its route, why that route, and how long it took once it is done.

    >>> import tensormem as tm
    >>> report = tm.zeros(1000).to("pinned").transfer_report
    >>> report.nbytes, report.route, report.done
    (4000, 'cpu', True)
    """

    cdef readonly uint64_t nbytes
    cdef readonly object route
    cdef readonly object why
    cdef readonly object source
    cdef readonly object destination
    cdef double _seconds
    cdef Event _start
    cdef Event _end
    cdef object _error
    cdef bint _heard
    cdef Construction _construction

    def __init__(self, nbytes, route, why, source, destination, seconds=None):
        begin_construction(self._construction, self)
        self.nbytes = nbytes
        self.route = route
        self.why = why
        self.source = source
        self.destination = destination
        self._seconds = -1.0 if seconds is None else seconds

    def __dealloc__(self):
        if self._error is not None and not self._heard:
            report_unraisable(self._error, TransferReport)

    cdef int fail(self, object error) except -1:
        # The first failure is what went wrong.
        if self._error is None:
            self._error = error
        return 0

    @property
    def error(self):
        """What went wrong when its turn came on the stream: then the bytes are not there. None if nothing did.

        It is raised once, where the bytes are waited for or next read; if nobody does, `sys.unraisablehook` hears of it.
        """
        self._heard = True
        return self._error

    @property
    def unheard(self):
        """Whether something went wrong, and nobody has asked what."""
        return self._error is not None and not self._heard

    def took(self, seconds):
        """Say how long the copy took."""
        self._seconds = seconds

    def runs_between(self, Event start not None, Event end not None):
        """Say that the copy is what a stream does between two events."""
        self._start = start
        self._end = end

    @property
    def end(self):
        """The event that marks its end on a stream; None for a copy that was over at once."""
        return self._end

    @property
    def done(self):
        """Whether the copy is over."""
        return self._end is None or self._end.done

    @property
    def seconds(self):
        """How long it took; None while it is under way."""
        if self._seconds < 0 and self._start is not None and self._end.done:
            self._seconds = self._end.seconds_since(self._start)
        return None if self._seconds < 0 else self._seconds

    @property
    def bytes_per_second(self):
        """Its speed; None while it is under way, or when it was too short to tell."""
        seconds = self.seconds
        return self.nbytes / seconds if seconds else None

    def __repr__(self):
        took = "under way" if self.seconds is None else f"{self.seconds * 1e6:.1f} us"
        if self._error is not None:
            took = f"failed: {self._error!r}"
        return f"<TransferReport {self.source} -> {self.destination}, {self.nbytes} bytes by {self.route}, {took}>"


cdef object _slow = None
cdef str _CPU = "cpu"
cdef str _CPU_WHY = "the CPU reaches both sides"


def install_transfers(slow):
    """Called once by `tensormem.copy`: what copies whenever more has to be thought of than two layouts."""
    global _slow
    _slow = slow


def copy_into(to, source, *, stream=None):
    """Copy the values of `source` into `to`, in the same space; see `Tensor.copy_`.

    >>> import tensormem as tm
    >>> tm.copy.copy_into(tm.zeros(3), tm.full(3, 2.0)).nbytes
    12
    """
    if stream is None and type(source) is Tensor and type(to) is Tensor:
        report = _quick_copy(to, source)
        if report is not None:
            return report
    return _slow(to, source, stream)


cdef TransferReport _quick_copy(Tensor to, Tensor source):
    # Main memory on both sides, nothing under way, nothing shared: the common case. None where it is another.
    cdef Storage left = to.storage
    cdef Storage right = source.storage
    if (left.space is not right.space or not left.host or not right.host or to._readonly
            or left.is_closed() or right.is_closed() or left.is_pending() or right.is_pending() or left._id == right._id
            or not _same(to, source)):
        return None
    if left.address < right.address + right.capacity and right.address < left.address + left.capacity:
        return None
    if left.accesses is not None or right.accesses is not None:
        return _quick_bracketed(to, source)
    left.begin_use()
    try:
        right.begin_use()
        try:
            prepare_now(right, Access.read)
            prepare_now(left, Access.write)
            return _run_quick(to, source, to.first, source.first)
        finally:
            right.end_use()
    finally:
        left.end_use()


cdef Tensor _clone_now(Tensor source):
    return _copied(source, None)


cdef Tensor _move_now(Tensor source, object space):
    cdef DeviceMemoryResource mr = destination_of(source, space)
    return None if mr is None else _copied(source, mr)


cdef Tensor _copied(Tensor source, DeviceMemoryResource mr):
    # Into memory of `mr`, or of the resource that made the source's; None where that takes more thought.
    cdef Storage storage = source.storage
    cdef Tensor made
    if not storage.host or storage.accesses is not None or storage.is_pending() or source.nbytes_() == 0:
        return None
    storage.begin_use()
    try:
        if mr is None:
            if type(storage._owner) is not DeviceBlock:
                return None
            mr = (<DeviceBlock>storage._owner)._mr
        made = new_like(source, mr)
        prepare_now(storage, Access.read)
        _run_quick(made, source, made.first, source.first)
        return made
    finally:
        storage.end_use()


cdef TransferReport _quick_bracketed(Tensor to, Tensor source):
    # The same where an owner is told of it. What is lent meanwhile cannot be closed.
    cdef Lent written = _lend(to, "w")
    cdef Lent read
    try:
        read = _lend(source, "r")
        try:
            return _run_quick(to, source, written.first, read.first)
        finally:
            read.give_back()
    finally:
        written.give_back()


@cython.final
@cython.freelist(8)
cdef class Lent:
    """The address of a tensor's first element, for as long as a copy takes."""

    cdef Tensor tensor
    cdef str mode
    cdef uint64_t first

    cdef int give_back(self) except -1:
        cdef Storage storage = self.tensor.storage
        try:
            if storage.accesses is not None:
                storage.accesses.end_planned(self.mode)
        finally:
            storage.end_use()
        return 0


cdef Lent _lend(Tensor tensor, str mode):
    cdef Storage storage = tensor.storage
    cdef Lent lent = Lent.__new__(Lent)
    lent.tensor = tensor
    lent.mode = mode
    lent.first = tensor.first
    storage.begin_use()
    try:
        if storage.accesses is None:
            prepare_now(storage, Access.write if mode == "w" else Access.read)
        else:
            lent.first = storage.accesses.begin_planned(mode) + (tensor.first - storage.address)
    except BaseException:
        storage.end_use()
        raise
    return lent


cdef TransferReport _run_quick(Tensor to, Tensor source, uint64_t to_first, uint64_t source_first):
    cdef TransferReport report
    cdef CopyPlan plan
    cdef Storage left = to.storage
    cdef Storage right = source.storage
    cdef int64_t start = now_ns()
    _plan(to, source, &plan, to_first, source_first)
    _run_inline(plan)
    if plan.run:
        report_copy(to.first, source.first, plan.nbytes(), 0)
    report = TransferReport.__new__(TransferReport)
    report._seconds = (now_ns() - start) * 1e-9
    report.nbytes = plan.nbytes() if plan.run else 0
    report.route = _CPU
    report.why = _CPU_WHY
    report.source = right.space
    report.destination = left.space
    left.set_transfer(report)
    return report


cdef int _run_inline(const CopyPlan& plan) except -1:
    if plan.run == 0:
        return 0
    if plan.nbytes() <= _QUICK:
        run_on_host(plan)
    else:
        with nogil:
            run_on_host(plan)
    return 0


cdef bint _same(Tensor to, Tensor source):
    cdef int32_t i
    if to.rank != source.rank or to.element is not source.element:
        return False
    for i in range(to.rank):
        if to.dims[i] != source.dims[i]:
            return False
    return True


cdef extern from *:
    """
    #include <chrono>
    static inline long long now_ns() {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(
                 std::chrono::steady_clock::now().time_since_epoch())
          .count();
    }
    """
    int64_t now_ns() nogil


def stream_on(Driver driver not None, stream):
    """The stream of `driver` behind what a caller gave: ours, or anything with `__cuda_stream__`; None is the default."""
    cdef Driver its
    if type(stream) is Stream:
        its = (<Stream>stream).driver
        # Devices of one vendor take one another's streams; the default stream is each device's own.
        if its is driver or (its is not None and (<Stream>stream)._id != 0 and shares_streams(its, driver)):
            return stream
    return borrow_stream(driver, stream_id(stream, driver.native))


def borrowed(Stream stream not None):
    """The same stream by another object, which does not own it."""
    return borrow_stream(stream.driver, stream._id)


def shares_streams(Driver one not None, Driver other not None):
    """Whether streams of one driver can wait for events of the other."""
    return one.native == other.native or share_streams(one.native[0], other.native[0])


def copy_on_host(Tensor to not None, Tensor source not None, Driver driver not None, stream=None,
                 TransferReport report=None):
    """Copy with the CPU, in the order of `stream` of `driver`; how many bytes.

    Where an owner is told of the access, `report` is what hears of a failure when its turn comes.
    """
    cdef CopyPlan plan
    cdef CopyPlan* queued
    cdef Status status
    cdef StreamId queue = stream_id(stream, driver.native)
    cdef uint64_t nbytes
    _plan(to, source, &plan, to.first, source.first)
    nbytes = plan.nbytes()
    if nbytes == 0:
        return 0
    if _is_told_of(to) or _is_told_of(source):
        _queue(_access(to, source, None, report), driver, queue)
    elif not driver.native.stream_is_inline(queue):
        queued = new CopyPlan(plan)
        with nogil:
            status = driver.native.launch_host(tm_run_and_drop, queued, queue)
        if not status.ok():
            del queued
        check(move(status))
    else:
        _run_inline(plan)
    report_copy(to.first, source.first, nbytes, queue)
    return nbytes


def copy_by_driver(Tensor to not None, Tensor source not None, Driver driver not None, stream=None, *,
                   int32_t to_device, int32_t source_device, most_boxes=4096):
    """Copy with the driver's own copies of boxes; how many bytes, or -1 where that would take too many boxes."""
    cdef CopyPlan plan
    cdef CopyBox box
    cdef int32_t outer = 0
    cdef StreamId queue = stream_id(stream, driver.native)
    cdef Status status
    _plan(to, source, &plan, to.first, source.first)
    if plan.run == 0:
        return 0
    if not as_box(plan, &box, &outer):
        return -1
    boxes = 1
    for i in range(outer):
        boxes *= plan_length(plan, i)
    if boxes > most_boxes:
        return -1
    box.to.device = to_device
    box.source.device = source_device
    with nogil:
        status = _walk(driver.native, plan, 0, outer, box, queue)
    check(move(status))
    report_copy(to.first, source.first, plan.nbytes(), queue)
    return plan.nbytes()


cdef extern from *:
    """
    static inline long long plan_length(const tensormem::CopyPlan& plan, int i) {
      return plan.length[static_cast<std::size_t>(i)];
    }
    static tensormem::Status tm_walk(tensormem::Driver* driver, const tensormem::CopyPlan& plan, int level, int outer,
                                     tensormem::CopyBox box, tensormem::StreamId stream) {
      if (level == outer) return driver->copy(box.to, box.from, box.shape, stream);
      const auto at = static_cast<std::size_t>(level);
      for (std::int64_t i = 0; i < plan.length[at]; ++i) {
        tensormem::CopyBox next = box;
        next.to.address += static_cast<std::uint64_t>(i * plan.to_stride[at]);
        next.from.address += static_cast<std::uint64_t>(i * plan.from_stride[at]);
        TM_TRY(tm_walk(driver, plan, level + 1, outer, next, stream));
      }
      return {};
    }
    """
    long long plan_length(const CopyPlan& plan, int i) nogil
    Status _walk "tm_walk"(NativeDriver* driver, const CopyPlan& plan, int level, int outer, CopyBox box,
                           StreamId stream) nogil


cdef int _plan(Tensor to, Tensor source, CopyPlan* plan, uint64_t to_first, uint64_t source_first) except -1:
    cdef int64_t[64] to_steps
    cdef int64_t[64] source_steps
    cdef int64_t item = <int64_t>to.element.width.bytes()
    cdef int64_t[1] whole
    cdef StridedPlace left, right
    cdef int32_t i
    to.storage.check_reach("a copy")
    source.storage.check_reach("a copy")
    to.check_mapped()
    source.check_mapped()
    left.address = to_first
    right.address = source_first
    if to.element.width.packed:
        # Elements that share bytes lie without gaps on both sides.
        whole[0] = <int64_t>to.nbytes_()
        check(plan_copy(1, whole, 1, left, right, plan))
        return 0
    for i in range(to.rank):
        to_steps[i] = to.steps()[i] * item
        source_steps[i] = source.steps()[i] * item
    left.byte_strides = to_steps
    right.byte_strides = source_steps
    check(plan_copy(to.rank, to.dims, <uint64_t>item, left, right, plan))
    return 0


def same_layout(Tensor to not None, Tensor source not None):
    """Refuse tensors of different shapes or element types."""
    if _same(to, source):
        return
    if to.shape != source.shape:
        raise errors.InvalidArgument(f"shapes differ: {to.shape} and {source.shape}")
    raise errors.InvalidArgument(f"element types differ: {to.element.dtype} and {source.element.dtype}; nothing is "
                                 "converted")


def overlap(Tensor a not None, Tensor b not None):
    """Whether the bytes that the two reach meet."""
    cdef uint64_t[2] first
    cdef uint64_t[2] end
    cdef bint same = a.storage._id == b.storage._id
    if a.count() == 0 or b.count() == 0 or not (same or (a.storage.address and b.storage.address)):
        return False
    # The same memory may be mapped twice, and then only the offsets tell.
    _reach(a, a.first - a.storage.address if same else a.first, &first[0], &end[0])
    _reach(b, b.first - b.storage.address if same else b.first, &first[1], &end[1])
    return first[0] < end[1] and first[1] < end[0]


cdef void _reach(Tensor tensor, uint64_t start, uint64_t* first, uint64_t* end):
    cdef int64_t below = 0, above = 0, reach
    cdef int64_t item = <int64_t>tensor.element.width.bytes()
    cdef int32_t i
    for i in range(tensor.rank):
        reach = (tensor.dims[i] - 1) * tensor.steps()[i]
        if reach < 0:
            below += reach
        else:
            above += reach
    first[0] = start + <uint64_t>(below * item)
    end[0] = start + <uint64_t>((above + 1) * item)


install_copies(_clone_now, _move_now, copy_into)
