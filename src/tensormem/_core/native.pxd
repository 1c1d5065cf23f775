# Owns: the declarations of the native library that the Cython modules of this package use. No code.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.string_view cimport string_view
from libcpp.vector cimport vector


cdef extern from "base/status.hpp" namespace "tensormem" nogil:
    cdef cppclass Status:
        Status()
        cbool ok()


cdef extern from "base/status_codes.hpp" namespace "tensormem" nogil:
    cdef enum class Code(uint8_t):
        out_of_physical_memory
        out_of_budget


cdef extern from "base/wait.hpp" namespace "tensormem" nogil:
    const uint64_t kForEver "tensormem::Wait::kForEver"
    cdef cppclass Wait:
        @staticmethod
        Wait until_done()
        @staticmethod
        Wait of_caller(uint64_t nanoseconds)
        @staticmethod
        Wait of_caller(uint64_t nanoseconds, const char* what)


cdef extern from "base/ending.hpp" namespace "tensormem" nogil:
    void begin_ending(uint64_t nanoseconds)
    cbool is_ending()


cdef extern from "base/interned.hpp" namespace "tensormem" nogil:
    ctypedef uint32_t TagId
    TagId intern_tag(string_view text)
    string_view tag_text(TagId tag)


cdef extern from "base/used_range.hpp" namespace "tensormem" nogil:
    cdef cppclass UsedRange:
        void begin(uint64_t address)
        void reach(uint64_t nbytes)
        void end()
    cbool is_used(uint64_t address, uint64_t nbytes)
    uint64_t count_uses(uint64_t address, uint64_t nbytes)


cdef extern from "base/stats_fields.hpp" namespace "tensormem" nogil:
    cdef cppclass Stats:
        pass
    cdef cppclass StatsField:
        const char* name
        const char* meaning
    const StatsField kStatsFields[]
    const int kStatsFieldCount
    uint64_t stats_value(const Stats& stats, int field)


cdef extern from "driver/types.hpp" namespace "tensormem" nogil:
    ctypedef uint64_t StreamId
    ctypedef void* EventHandle
    ctypedef uint64_t PhysicalHandle
    ctypedef void (*HostFunction)(void*) noexcept nogil
    cdef enum class MemoryKind(uint8_t):
        device
        pinned
        managed
    cdef enum class AccessFlags(uint8_t):
        none
        read
        read_write
    cdef enum class Advice(uint8_t):
        read_mostly
        unset_read_mostly
        preferred_location
        unset_preferred_location
        accessed_by
        unset_accessed_by
    cdef cppclass DeviceInfo:
        char name[96]
        uint64_t total_bytes
        int32_t numa_node
        cbool simulated
        cbool managed_memory
        cbool virtual_memory
        cbool memory_pools
        cbool posix_handles
        cbool concurrent_managed_access
        cbool integrated
        cbool host_native_atomics
        cbool pageable_memory_access
    cdef cppclass MemoryInfo:
        uint64_t free_bytes
        uint64_t total_bytes
    cdef cppclass AllocationOptions:
        MemoryKind kind
        uint64_t alignment
        int32_t numa_node
        cbool huge_pages
        cbool zeroed
    cdef cppclass CopyShape:
        uint64_t width
        uint64_t height
        uint64_t depth
    cdef cppclass Pitched:
        uint64_t address
        int32_t device
        uint64_t row_pitch
        uint64_t plane_pitch
    cdef cppclass Granularity:
        uint64_t minimum
        uint64_t recommended
        cbool whole_handles
    cdef cppclass PhysicalOptions:
        cbool exportable
        cbool huge_pages
        uint64_t placement
    cdef cppclass PhysicalInfo:
        uint64_t size
        int32_t device
        cbool exportable
        cbool huge_pages
        cbool imported


cdef extern from "driver/driver.hpp" namespace "tensormem" nogil:
    cdef cppclass Driver:
        const char* name()
        Status device_count(int32_t* count)
        Status device_info(int32_t device, DeviceInfo* info)
        Status memory_info(int32_t device, MemoryInfo* info)
        int32_t home()
        Status stream_create(int32_t device, StreamId* stream)
        Status stream_destroy(StreamId stream)
        Status stream_synchronize(StreamId stream)
        Status stream_wait(StreamId stream, Wait wait)
        Status stream_close(StreamId stream, Wait wait)
        Status stream_query(StreamId stream, cbool* done)
        Status stream_export(StreamId stream, uint64_t* native_handle)
        Status stream_import(int32_t device, uint64_t native_handle, StreamId* stream)
        cbool stream_is_valid(StreamId stream)
        Status event_create(int32_t device, EventHandle* event)
        Status event_create_timed(int32_t device, EventHandle* event)
        Status event_destroy(EventHandle event)
        Status event_record(EventHandle event, StreamId stream)
        Status event_query(EventHandle event, cbool* done)
        Status event_synchronize(EventHandle event)
        Status event_wait(EventHandle event, Wait wait)
        Status event_elapsed(EventHandle start, EventHandle end, double* seconds)
        Status stream_wait_event(StreamId stream, EventHandle event)
        Status copy(const Pitched& destination, const Pitched& source, const CopyShape& shape, StreamId stream)
        Status fill(const Pitched& destination, const CopyShape& shape, uint64_t value, uint32_t element_bytes,
                    StreamId stream)
        Status launch_host(HostFunction function, void* argument, StreamId stream)
        Status pin(uint64_t address, uint64_t nbytes)
        Status unpin(uint64_t address, uint64_t nbytes)
        Status prefetch(uint64_t address, uint64_t nbytes, int32_t device, StreamId stream)
        Status advise(uint64_t address, uint64_t nbytes, Advice advice, int32_t device)
        Status external_import(int32_t device, int32_t fd, uint64_t nbytes, uint64_t* address)
        Status external_release(uint64_t address)
        cbool stream_is_inline(StreamId stream)
        Status granularity(int32_t device, Granularity* granularity)
        Status reserve(uint64_t size, uint64_t alignment, uint64_t* address)
        Status release(uint64_t address, uint64_t size)
        Status physical_create(int32_t device, uint64_t size, const PhysicalOptions& options,
                               PhysicalHandle* physical)
        Status physical_destroy(PhysicalHandle physical)
        Status physical_info(PhysicalHandle physical, PhysicalInfo* info)
        Status map(uint64_t address, uint64_t size, PhysicalHandle physical, uint64_t physical_offset)
        Status unmap(uint64_t address, uint64_t size)
        Status set_access(uint64_t address, uint64_t size, int32_t device, AccessFlags access)
        Status physical_export(PhysicalHandle physical, int32_t* fd)
        Status physical_import(int32_t device, int32_t fd, PhysicalHandle* physical)


cdef extern from "driver/memory_space.hpp" namespace "tensormem" nogil:
    cdef enum class SpaceKind(uint8_t):
        main
        pinned
        gpu
        managed
    cdef cppclass MemorySpace:
        MemorySpace()
        SpaceKind kind
        int32_t device
        cbool host_reaches
        cbool device_reaches
        cbool nobody_reaches()
    string text_of(const MemorySpace& space)
    cbool space_from_text(string_view text, MemorySpace* space)


cdef extern from "alloc/block.hpp" namespace "tensormem" nogil:
    cdef enum class BlockState(uint8_t):
        live
        retired
        quarantined
        freed
    cdef cppclass Block:
        uint64_t address
        uint64_t nbytes
        uint64_t generation
        StreamId stream
        TagId tag
        cbool zeroed
        uint32_t origin
        uint32_t slot
        uint8_t alignment_log2
    cbool is_handle(uint64_t address)


cdef extern from "order/block_uses.hpp" namespace "tensormem" nogil:
    cdef enum class Access(uint8_t):
        read
        write
        read_write


cdef extern from "resource/memory_maker.hpp" namespace "tensormem" nogil:
    cdef cppclass MemoryMaker:
        pass
    cdef cppclass MakerScope:
        MakerScope(MemoryMaker* maker)
    MemoryMaker* maker_in_force()


cdef extern from "resource/resource.hpp" namespace "tensormem" nogil:
    cdef cppclass AllocRequest:
        uint64_t nbytes
        uint64_t alignment
        StreamId stream
        TagId tag
        MemoryMaker* maker
        cbool zeroed
    cdef cppclass Resource:
        Status allocate(const AllocRequest& request, Block* block)
        Status deallocate(const Block& block, StreamId stream, BlockState* end)
        uint64_t bytes_outstanding()
        Stats stats()
        BlockState state_of(const Block& block)
        Status reap_pending()
        cbool supports_block_use_tracking()
        Status prepare_block_use(const Block& block, StreamId stream, Access access)
        Status finish_block_use(const Block& block, StreamId stream, Access access)
        Driver& driver()
        int32_t device()
        const MemorySpace& space()
        uint32_t id()
    ctypedef shared_ptr[Resource] ResourcePtr


cdef extern from "resource/plain_memory_resource.hpp" namespace "tensormem" nogil:
    cdef cppclass PlainMemoryResource(Resource):
        PlainMemoryResource(Driver& driver, int32_t device, const AllocationOptions& options)


cdef extern from "resource/async_memory_resource.hpp" namespace "tensormem" nogil:
    cdef cppclass AsyncMemoryResource(Resource):
        @staticmethod
        Status create(Driver& driver, int32_t device, uint64_t keep_bytes, shared_ptr[AsyncMemoryResource]* out)
        Status trim(uint64_t keep_bytes)
        Status keep(uint64_t keep_bytes)


cdef extern from "resource/callback_memory_resource.hpp" namespace "tensormem" nogil:
    cdef cppclass MemoryCallbacks:
        pass
    cdef cppclass CallbackMemoryResource(Resource):
        CallbackMemoryResource(Driver& driver, int32_t device, MemoryCallbacks callbacks, uint64_t alignment)


cdef extern from "resource/kind_memory_resource.hpp" namespace "tensormem" nogil:
    cdef cppclass KindMemoryResource(Resource):
        KindMemoryResource(Driver& driver, int32_t device, const MemorySpace& space, shared_ptr[MemoryMaker] standard)


cdef extern from "resource/pool_memory_resource.hpp" namespace "tensormem" nogil:
    cdef cppclass PoolOptions:
        uint64_t initial_bytes
        uint64_t maximum_bytes
        uint64_t release_threshold
        uint64_t block_bytes
        uint64_t chunk_bytes
        uint64_t pending_timeout_ns
    cdef cppclass PoolUsage:
        uint64_t reserved_bytes
        uint64_t total_free
        uint64_t largest_free
        uint64_t pending_bytes
        uint64_t chunk_count
        double fragmentation()
    cdef cppclass PoolMemoryResource(Resource):
        @staticmethod
        Status create(ResourcePtr upstream, const PoolOptions& options, shared_ptr[PoolMemoryResource]* out)
        PoolUsage usage()
        Status trim(uint64_t keep_bytes, uint64_t* released)


cdef extern from "pool/budget.hpp" namespace "tensormem" nogil:
    cdef cppclass Budget:
        Status claim(uint64_t nbytes)
        Status try_claim(uint64_t nbytes)
        void give_back(uint64_t nbytes)
        uint64_t limit()
        uint64_t used()
    ctypedef shared_ptr[Budget] BudgetPtr
    cdef cppclass BudgetCounts:
        uint64_t peak_bytes
        uint64_t total_bytes
        uint64_t total_count
    cdef cppclass LocalBudget(Budget):
        LocalBudget(uint64_t limit, Code refusal)
        LocalBudget(uint64_t limit, Code refusal, vector[BudgetPtr] larger, cbool counts)
        void set_limit(uint64_t limit)
        BudgetCounts counts()


cdef extern from "resource/limiting_resource_adaptor.hpp" namespace "tensormem" nogil:
    cdef cppclass LimitingResourceAdaptor(Resource):
        LimitingResourceAdaptor(ResourcePtr upstream, BudgetPtr budget) except +MemoryError
        uint64_t limit()
        uint64_t charged()
        uint64_t promised()
        Status promise(uint64_t nbytes)
        void withdraw_promise(uint64_t nbytes)
        Status allocate_promised(const AllocRequest& request, Block* block)


cdef extern from "resource/statistics_resource_adaptor.hpp" namespace "tensormem" nogil:
    cdef cppclass ScopeCounters:
        int64_t current_bytes
        int64_t current_count
        int64_t peak_bytes
        int64_t peak_count
        int64_t total_bytes
        int64_t total_count
    cdef cppclass StatisticsResourceAdaptor(Resource):
        StatisticsResourceAdaptor(ResourcePtr upstream)
        ScopeCounters counters()
        ScopeCounters push()
        Status pop(ScopeCounters* ended)


cdef extern from "resource/aligned_resource_adaptor.hpp" namespace "tensormem" nogil:
    cdef cppclass AlignedResourceAdaptor(Resource):
        AlignedResourceAdaptor(ResourcePtr upstream, uint64_t alignment, uint64_t threshold)


cdef extern from "resource/prefetch_resource_adaptor.hpp" namespace "tensormem" nogil:
    cdef cppclass PrefetchResourceAdaptor(Resource):
        PrefetchResourceAdaptor(ResourcePtr upstream, int32_t target)


cdef extern from "resource/fault_injection_resource_adaptor.hpp" namespace "tensormem" nogil:
    cdef cppclass FaultInjectionPlan:
        uint64_t nth
        uint64_t every
        uint64_t min_bytes
        uint64_t max_bytes
        cbool only_tag
        TagId tag
        double probability
        uint64_t seed
    cdef cppclass FaultInjectionResourceAdaptor(Resource):
        FaultInjectionResourceAdaptor(ResourcePtr upstream, const FaultInjectionPlan& plan)
        uint64_t matching_calls()
        uint64_t injected_faults()


cdef extern from "resource/failure_callback_resource_adaptor.hpp" namespace "tensormem" nogil:
    cdef cppclass RetryCallback "tensormem::FailureCallbackResourceAdaptor::Callback":
        pass
    cdef cppclass FailureCallbackResourceAdaptor(Resource):
        FailureCallbackResourceAdaptor(ResourcePtr upstream, RetryCallback callback)


cdef extern from "resource/pressure_resource_adaptor.hpp" namespace "tensormem" nogil:
    cdef enum class PressureLevel(uint8_t):
        normal
        warn
        critical
    cdef cppclass PressureMarks:
        uint64_t warn
        uint64_t critical
        uint64_t hysteresis
    cdef cppclass LevelCallback "tensormem::PressureResourceAdaptor::Callback":
        pass
    cdef cppclass PressureResourceAdaptor(Resource):
        PressureResourceAdaptor(ResourcePtr upstream, const PressureMarks& marks, LevelCallback callback)
        PressureLevel level()


cdef extern from "resource/foreign_resource_adaptor.hpp" namespace "tensormem" nogil:
    cdef cppclass ResourceHooks:
        pass
    cdef cppclass ForeignResourceAdaptor(Resource):
        ForeignResourceAdaptor(ResourcePtr upstream, ResourceHooks hooks)


cdef extern from "resource/binning_memory_resource.hpp" namespace "tensormem" nogil:
    cdef cppclass BinningMemoryResource(Resource):
        BinningMemoryResource(ResourcePtr upstream)
        Status add_bin(uint64_t largest, ResourcePtr resource)
        vector[uint64_t] bin_sizes()


cdef extern from "resource/arena_memory_resource.hpp" namespace "tensormem" nogil:
    cdef cppclass ArenaMemoryResource(Resource):
        @staticmethod
        uint32_t default_arena_count()
        @staticmethod
        Status create(ResourcePtr upstream, uint32_t arenas, shared_ptr[ArenaMemoryResource]* out,
                      uint64_t pending_timeout_ns)
        PoolUsage usage()
        Status trim(uint64_t* released)
        uint32_t arena_count()
