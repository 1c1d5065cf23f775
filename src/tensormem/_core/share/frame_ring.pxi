"""Owns: the two sides of a frame ring, as Python sees them: slots by number, held and let go, and waiting for them.

Must not know: the frames' memory; that is `tensormem.sharing`'s.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libcpp.memory cimport unique_ptr
from libcpp.utility cimport move

from tensormem._core.construction cimport Construction, begin_construction
from tensormem._core.failures cimport check
from tensormem._core.native cimport Status, Wait
from tensormem._core.native_share cimport (
    FrameFormat,
    HeldFrame,
    NativeRingFile,
    NativeRingReader,
    NativeRingWriter,
    ReadMode,
    ReadOutcome,
    RingFilePtr,
    WhenFull,
    kBusy,
    kNotBegun,
    kMaxFrameDims,
)
from tensormem._core.base cimport timeout_of
from tensormem._core.tensor cimport ElementType, element_from_code, element_of, parse_shape

from tensormem import errors

cdef tuple _WHEN_FULL = ("wait", "drop", "overwrite")
cdef tuple _MODES = ("latest", "every")


cdef uint32_t _choice(tuple names, object text, str what) except? 99:
    if text not in names:
        raise errors.InvalidArgument(f"{what} is one of {', '.join(map(repr, names))}, not {text!r:.80}")
    return names.index(text)


cdef object _unmade():
    return errors.UseAfterRelease(0, what="it was closed")


cdef class RingFile:
    """The control file of a frame ring."""

    cdef RingFilePtr _native

    def __init__(self):
        raise TypeError("make one with RingFile.create or RingFile.attach")

    cdef NativeRingFile* native(self) except NULL:
        if self._native.get() is NULL:
            raise _unmade()
        return self._native.get()

    @staticmethod
    def create(frames, shape, dtype, when_full, mode):
        """A new ring of `frames` frames."""
        cdef RingFile made = RingFile.__new__(RingFile)
        cdef FrameFormat form
        cdef int64_t[64] lengths
        cdef ElementType element = element_of(dtype)
        cdef int32_t rank = parse_shape(shape, lengths)
        if isinstance(frames, bool) or not isinstance(frames, int) or not 1 <= frames <= 1024:
            raise errors.InvalidArgument(f"a ring has from 1 to 1,024 frames, not {frames!r:.40}")
        if rank > kMaxFrameDims:
            raise errors.InvalidArgument(f"a frame has at most {kMaxFrameDims} dimensions, not {rank}")
        form.frame_count = frames
        form.when_full = <WhenFull>_choice(_WHEN_FULL, when_full, "when_full")
        form.mode = <ReadMode>_choice(_MODES, mode, "mode")
        form.dtype.code, form.dtype.bits, form.dtype.lanes = element.code, element.bits, element.lanes
        form.ndim = rank
        for i in range(rank):
            form.shape[i] = lengths[i]
        check(NativeRingFile.create(form, &made._native))
        return made

    @staticmethod
    def attach(int fd):
        """The ring behind a file descriptor, which stays the caller's; checked."""
        cdef RingFile made = RingFile.__new__(RingFile)
        check(NativeRingFile.attach(fd, &made._native))
        return made

    @property
    def fd(self):
        return self.native().fd()

    @property
    def nbytes(self):
        return self.native().nbytes()

    @property
    def frame_count(self):
        return self.native().format().frame_count

    @property
    def slot_count(self):
        return self.native().format().slot_count

    @property
    def slot_bytes(self):
        return self.native().format().slot_bytes

    @property
    def frame_bytes(self):
        return self.native().format().frame_bytes

    @property
    def when_full(self):
        return _WHEN_FULL[<uint32_t>self.native().format().when_full]

    @property
    def mode(self):
        return _MODES[<uint32_t>self.native().format().mode]

    @property
    def dtype(self):
        cdef FrameFormat form = self.native().format()
        return element_from_code(form.dtype.code, form.dtype.bits, form.dtype.lanes, False).dtype

    @property
    def shape(self):
        cdef FrameFormat form = self.native().format()
        return tuple([form.shape[i] for i in range(form.ndim)])

    @property
    def latest(self):
        return self.native().header().latest.load()

    @property
    def dropped(self):
        return self.native().header().dropped.load()

    @property
    def writer_pid(self):
        return self.native().header().writer_pid.load()

    def close(self):
        """Let go of the file; readers and writers that are attached keep it."""
        self._native.reset()

    def readers(self):
        """(pid, every, taken, missed) of those who have joined."""
        found = self.native().readers()
        return [(found[i].pid, found[i].every, found[i].taken, found[i].missed) for i in range(found.size())]


cdef class RingWriter:
    """The one who writes; `RingBusy` where there is another."""

    cdef RingFile _file
    cdef unique_ptr[NativeRingWriter] _native
    cdef Construction _construction

    def __init__(self, RingFile file not None):
        begin_construction(self._construction, self)
        file.native()
        check(NativeRingWriter.attach(file._native, &self._native))
        if self._native.get() is NULL:
            raise errors.RingBusy(file.writer_pid, what="another writer has it")
        self._file = file

    cdef NativeRingWriter* native(self) except NULL:
        if self._native.get() is NULL:
            raise _unmade()
        return self._native.get()

    @property
    def forked(self):
        """Whether this process was forked from the writer, and so is none."""
        return self.native().is_forked()

    def begin(self, timeout=None):
        """The slot to write into."""
        cdef uint64_t most = timeout_of(timeout)
        cdef uint32_t slot = 0
        cdef NativeRingWriter* native = self.native()
        cdef Status status
        with nogil:
            status = native.wait(Wait.of_caller(most, "all frames are unread or in use"), &slot)
        check(move(status))
        if slot == kBusy:
            raise errors.RingBusy(self._file.writer_pid, what="a frame is being written already")
        return slot

    def close(self):
        """Wake whoever waits for a slot: nobody writes any more."""
        self.native().close()

    def publish(self, uint64_t timestamp):
        """Make the slot the newest frame; its number, or 0 when it was dropped."""
        cdef NativeRingWriter* native = self.native()
        cdef uint64_t number
        with nogil:
            number = native.publish(timestamp)
        if number == kNotBegun:
            raise errors.InvalidArgument("no frame is being written: begin() comes before each publish()")
        return number

    def abandon(self):
        """Give the slot up as it is."""
        self.native().abandon()

    def end(self):
        """Tell readers that no frame follows."""
        self.native().end()


@cython.no_gc_clear
cdef class SlotHold:
    """A frame that a reader holds. Letting go happens once, by `release` or when it is dropped."""

    cdef RingReader _reader
    cdef HeldFrame _frame
    cdef object _memory  # what the slot is in: it must not go before the hold
    cdef bint _held

    def __init__(self):
        raise TypeError("holds are made by RingReader.take")

    @property
    def slot(self):
        return self._frame.slot

    @property
    def number(self):
        return self._frame.number

    @property
    def timestamp(self):
        return self._frame.timestamp

    @property
    def dropped(self):
        return self._frame.dropped

    def release(self):
        if self._held:
            self._held = False
            self._reader._native.get().give_back(self._frame.slot)

    def __dealloc__(self):
        if self._held:
            self._reader._native.get().give_back(self._frame.slot)


cdef class RingReader:
    """One of those who read; `RingBusy` where no place is left. It leaves when it and all its holds are dropped."""

    cdef RingFile _file
    cdef unique_ptr[NativeRingReader] _native
    cdef Construction _construction

    def __init__(self, RingFile file not None, mode):
        begin_construction(self._construction, self)
        cdef ReadMode chosen = <ReadMode>_choice(_MODES, mode, "mode")
        file.native()
        check(NativeRingReader.attach(file._native, chosen, &self._native))
        if self._native.get() is NULL:
            raise errors.RingBusy(0, what="all 62 places for readers are taken")
        self._file = file

    cdef NativeRingReader* native(self) except NULL:
        if self._native.get() is NULL:
            raise _unmade()
        return self._native.get()

    @property
    def forked(self):
        """Whether this process was forked from the reader's, and so has no part in the ring."""
        return self.native().is_forked()

    def take(self, memory, timeout=None, bint wait_for_writer=False):
        """The next frame, held. `memory` is kept for as long."""
        cdef uint64_t most = timeout_of(timeout)
        cdef SlotHold hold = SlotHold.__new__(SlotHold)
        cdef ReadOutcome outcome = ReadOutcome.nothing_yet
        cdef NativeRingReader* native = self.native()
        cdef Status status
        hold._reader = self
        hold._memory = memory
        with nogil:
            status = native.wait(Wait.of_caller(most, "no new frame came"), wait_for_writer, &hold._frame, &outcome)
        hold._held = outcome == ReadOutcome.frame
        check(move(status))
        if outcome == ReadOutcome.ended:
            raise errors.EndOfFrames(self._file.latest)
        if outcome == ReadOutcome.writer_gone:
            raise errors.WriterGone(self._file.writer_pid, self._file.latest)
        return hold

    def close(self):
        """Wake whoever waits for a frame: nobody reads any more. Frames that are held stay."""
        self.native().close()
