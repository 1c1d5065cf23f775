"""Owns: block tables as Python sees them: batches of sequences, through any buffer of 64-bit integers or any sequence.

Must not know: models, and what is in a block.
"""
from tensormem._core.native_block_tables cimport BlockTables as NativeTables
from tensormem._core.native_block_tables cimport BlockTablesStats, SequenceId


cdef int _check_length(str what, uint64_t found, uint64_t expected) except -1:
    if found != expected:
        raise errors.InvalidArgument(f"{what}: {expected:,} are needed, and {found:,} were given")
    return 0


cdef int _take_counts(object counts, uint64_t count, IdBatch* batch) except -1:
    # One number for all of them, or one for each.
    if PyIndex_Check(counts):
        counts = array.array("q", (_index(counts),)) * count
    _take(counts, batch)
    return _check_length("numbers of tokens", batch.size(), count)


cdef object _index(object number):
    try:
        return operator.index(number)
    except TypeError:
        raise errors.InvalidArgument(f"a number of tokens is an integer, not {number!r}") from None


cdef uint64_t _sum(const IdBatch* batch) except? 0xFFFFFFFFFFFFFFFF:
    cdef uint64_t total = 0, i
    cdef int64_t each
    for i in range(batch.size()):
        each = <int64_t>batch.data()[i]
        if each < 0 or each > (1 << 40):
            raise errors.InvalidArgument(f"{each} is not a number of tokens")
        total += <uint64_t>each
    return total


cdef class BlockTables:
    """See `tensormem.pools.BlockTables`, which tells what they have."""

    cdef shared_ptr[NativeTables] native
    cdef readonly BlockCache cache
    cdef readonly bint closed
    cdef ExportCount _uses
    cdef bint _holds
    cdef Construction _construction
    cdef object __weakref__

    def __init__(self, BlockCache cache not None, block_tokens=16):
        begin_construction(self._construction, self)
        cdef SharedUse[NativeCache] used = cache._share()
        tokens = _index(block_tokens)
        check(NativeTables.open(used.shared(), <uint64_t>max(0, min(tokens, 1 << 32)), &self.native))
        if not cache._tables.add():
            raise errors.UseAfterRelease(0, what="the cache was closed")
        self._holds = True
        self.cache = cache

    def __dealloc__(self):
        if self._holds:
            self.cache._tables.remove()

    @property
    def block_tokens(self):
        """The tokens of one block."""
        return self._open().block_tokens()

    # --- Sequences ---

    def allocate(self, lengths, *, tag=None):
        """New sequences with room for so many tokens each, all or none: their ids, as an `array('q')`."""
        cdef SharedUse[NativeTables] tables = self._share()
        cdef IdBatch sizes
        cdef TagId named = tag_or_current(tag)
        cdef Status status
        _take(lengths, &sizes)
        cdef arrays.array made = arrays.clone(_IDS, <Py_ssize_t>sizes.size(), False)
        cdef SequenceId* out = <SequenceId*>made.data.as_voidptr
        with nogil:
            status = tables.get().allocate(<const int64_t*>sizes.data(), sizes.size(), named, out)
        if not status.ok():
            refuse(self.cache, move(status), named)
        return made

    def admit(self, tokens, lengths, *, salt=0, tag=None):
        """New sequences of known tokens, one after the other in `tokens`: full blocks that others filled with the same
        beginning are shared. Gives their ids, and how many tokens of each need not be computed (never all of them).

        What differs in `salt` (another adapter, another tenant) is never shared.
        """
        cdef SharedUse[NativeTables] tables = self._share()
        cdef IdBatch words, sizes
        cdef TagId named = tag_or_current(tag)
        cdef uint64_t key = <uint64_t>(_index(salt) & 0xFFFFFFFFFFFFFFFF)
        cdef Status status
        _take(tokens, &words)
        _take(lengths, &sizes)
        _check_length("tokens of all sequences", words.size(), _sum(&sizes))
        cdef arrays.array made = arrays.clone(_IDS, <Py_ssize_t>sizes.size(), False)
        cdef arrays.array matched = arrays.clone(_IDS, <Py_ssize_t>sizes.size(), False)
        cdef SequenceId* out = <SequenceId*>made.data.as_voidptr
        cdef int64_t* shared = <int64_t*>matched.data.as_voidptr
        with nogil:
            status = tables.get().admit(<const int64_t*>words.data(), <const int64_t*>sizes.data(), sizes.size(), key,
                                        named, out, shared)
        if not status.ok():
            refuse(self.cache, move(status), named)
        return made, matched

    def extend(self, sequences, tokens=1, *, stream=None, tag=None):
        """Room for so many tokens more: one number for all of them, or one for each. All or none.

        A last block that others hold as well is copied first, in the order of `stream`.
        """
        cdef SharedUse[NativeTables] tables = self._share()
        cdef IdBatch ids, added
        cdef TagId named = tag_or_current(tag)
        cdef StreamId queue = stream_id(stream, self.cache.driver.native)
        cdef Status status
        _take(sequences, &ids)
        _take_counts(tokens, ids.size(), &added)
        with nogil:
            status = tables.get().extend(ids.data(), <const int64_t*>added.data(), ids.size(), named, queue)
        if not status.ok():
            refuse(self.cache, move(status), named)

    def truncate(self, sequences, lengths):
        """Keep only the first tokens of each: one number for all of them, or one for each."""
        cdef SharedUse[NativeTables] tables = self._share()
        cdef IdBatch ids, sizes
        cdef Status status
        _take(sequences, &ids)
        _take_counts(lengths, ids.size(), &sizes)
        with nogil:
            status = tables.get().truncate(ids.data(), <const int64_t*>sizes.data(), ids.size())
        check(move(status))

    def commit(self, sequences, tokens, lengths):
        """Say what the next tokens of each sequence are, one sequence after the other, those said before left out.

        From then on full blocks are found by `admit`. Say it when their contents have been computed.
        """
        cdef SharedUse[NativeTables] tables = self._share()
        cdef IdBatch ids, words, sizes
        cdef Status status
        _take(sequences, &ids)
        _take(tokens, &words)
        _take_counts(lengths, ids.size(), &sizes)
        _check_length("tokens of all sequences", words.size(), _sum(&sizes))
        with nogil:
            status = tables.get().commit(ids.data(), <const int64_t*>words.data(), <const int64_t*>sizes.data(), ids.size())
        check(move(status))

    def fork(self, sequences):
        """A twin of each, which shares all blocks until one of them writes: their ids, as an `array('q')`."""
        cdef SharedUse[NativeTables] tables = self._share()
        cdef IdBatch ids
        _take(sequences, &ids)
        cdef arrays.array made = arrays.clone(_IDS, <Py_ssize_t>ids.size(), False)
        cdef SequenceId* out = <SequenceId*>made.data.as_voidptr
        cdef Status status
        with nogil:
            status = tables.get().fork(ids.data(), ids.size(), out)
        check(move(status))
        return made

    def free(self, sequences):
        """End these sequences, all or none. Blocks that can be found by their contents stay while there is room."""
        cdef SharedUse[NativeTables] tables = self._share()
        cdef IdBatch ids
        cdef Status status
        _take(sequences, &ids)
        with nogil:
            status = tables.get().free(ids.data(), ids.size())
        check(move(status))

    # --- Reading ---

    def lengths(self, sequences):
        """How many tokens each has, as an `array('q')`."""
        cdef SharedUse[NativeTables] tables = self._share()
        cdef IdBatch ids
        _take(sequences, &ids)
        cdef arrays.array found = arrays.clone(_IDS, <Py_ssize_t>ids.size(), False)
        check(tables.get().lengths(ids.data(), ids.size(), <int64_t*>found.data.as_voidptr))
        return found

    def blocks(self, sequence):
        """The ids of the blocks of a sequence, in order, as an `array('q')`."""
        cdef SharedUse[NativeTables] tables = self._share()
        cdef vector[CacheBlockId] found
        check(tables.get().blocks(_one(sequence), &found))
        return _ids_of(found)

    def slots(self, sequences, dtype="int32", *, width=None, fill=-1, device=None):
        """A row of slots for each sequence, filled up with `fill`, as an array of two dimensions that NumPy and others
        take without a copy. `width` is that of the longest, or what you say. With a `device`, a tensor there.
        """
        cdef SharedUse[NativeTables] tables = self._share()
        cdef IdBatch ids
        cdef uint64_t columns = 0
        cdef arrays.array found
        cdef void* out
        cdef Status status
        cdef bint narrow = _is_narrow(dtype)
        cdef int64_t rest = _index(fill)
        _take(sequences, &ids)
        check(tables.get().width(ids.data(), ids.size(), &columns))
        if width is not None:
            columns = <uint64_t>max(0, min(_index(width), 1 << 31))
        found = arrays.clone(_NARROW if narrow else _IDS, <Py_ssize_t>(ids.size() * columns), False)
        out = found.data.as_voidptr
        with nogil:
            if narrow:
                status = tables.get().slots(ids.data(), ids.size(), columns, <int32_t>rest, <int32_t*>out)
            else:
                status = tables.get().slots(ids.data(), ids.size(), columns, rest, <int64_t*>out)
        check(move(status))
        shaped = memoryview(found)
        if len(found):
            shaped = shaped.cast("B").cast(found.typecode, (ids.size(), columns))
        return shaped if device is None else _above_caches().slots_on(shaped, device)

    def token_slots(self, sequences, starts, counts):
        """Where tokens lie, one sequence after the other: slot times `block_tokens`, plus the place in the block.

        Of each sequence, `counts` tokens from `starts` on; one number for all of them, or one for each.
        """
        cdef SharedUse[NativeTables] tables = self._share()
        cdef IdBatch ids, first, many
        _take(sequences, &ids)
        _take_counts(starts, ids.size(), &first)
        _take_counts(counts, ids.size(), &many)
        cdef arrays.array found = arrays.clone(_IDS, <Py_ssize_t>_sum(&many), False)
        cdef int64_t* out = <int64_t*>found.data.as_voidptr
        cdef Status status
        with nogil:
            status = tables.get().token_slots(ids.data(), <const int64_t*>first.data(), <const int64_t*>many.data(),
                                              ids.size(), out)
        check(move(status))
        return found

    def __contains__(self, sequence):
        cdef CacheBlockId which = _one(sequence)
        cdef int64_t length = 0
        return self._open().lengths(&which, 1, &length).ok()

    # --- Blocks that nobody holds ---

    def evict(self, count=None, *, nbytes=None):
        """End blocks that nobody holds, the least recently used first; says how many.

        So many of them, or as many as empty pages of `nbytes`: then those that empty a page go first.
        """
        cdef SharedUse[NativeTables] tables = self._share()
        cdef uint64_t wanted
        cdef bint by_pages = nbytes is not None
        if by_pages == (count is not None):
            raise errors.InvalidArgument("say either how many blocks or how many bytes of pages")
        wanted = size_of(nbytes) if by_pages else <uint64_t>max(0, _index(count))
        with nogil:
            wanted = tables.get().evict_pages(wanted) if by_pages else tables.get().evict(wanted)
        return wanted

    def _stats(self):
        cdef BlockTablesStats stats = self._open().stats()
        return {
            "sequences": stats.sequences,
            "held_blocks": stats.held_blocks,
            "resting_blocks": stats.resting_blocks,
            "asked_tokens": stats.asked_tokens,
            "matched_tokens": stats.matched_tokens,
            "total_copied": stats.total_copied,
            "total_evicted": stats.total_evicted,
        }

    def _is_valid(self):
        return self._open().is_valid()

    # --- The end ---

    def close(self):
        """End all sequences and free their blocks. `StillHeld` while calls of other threads are under way."""
        cdef shared_ptr[NativeTables] native
        if self.closed or self.native.get() is NULL:
            return
        if not self._uses.close():
            if self.closed:
                return
            raise errors.StillHeld(0, self._uses.count(), what="calls of other threads use the tables")
        self.closed = True
        native.swap(self.native)
        with nogil:
            native.reset()
        self._holds = False
        self.cache._tables.remove()

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, *failure):
        self.close()

    def __reduce__(self):
        raise TypeError("block tables belong to one process and cannot be pickled")

    cdef NativeTables* _open(self) except NULL:
        if self.native.get() is NULL:
            raise errors.UseAfterRelease(0, what="the tables were closed" if self.closed else "the tables were not made")
        return self.native.get()

    cdef SharedUse[NativeTables] _share(self) except *:
        self._open()
        if not self._uses.add():
            raise errors.UseAfterRelease(0, what="the tables were closed")
        return SharedUse[NativeTables](self.native, &self._uses)
