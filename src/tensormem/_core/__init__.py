"""Owns: the compiled modules. Nothing else in tensormem is compiled, and the layers above import the names assigned
here, so that the order of the layers can be checked.
"""

import importlib as _importlib
import os as _os

from tensormem._core import base as _base
from tensormem._core import interop as _interop
from tensormem._core import pool as _pool
from tensormem._core import resource as _resource
from tensormem._core import share as _share
from tensormem._core import tensor as _tensor
from tensormem._core import trace as _trace
from tensormem._core import vmm as _vmm
from tensormem.signatures import StubSignature as _StubSignature

Driver = _base.Driver
abstract_driver = _base.abstract
driver_from_capsule = _base.from_capsule
host_driver = _base.host
host_facts = _base.host_facts

ExplainedFunction = _base.ExplainedFunction
explained_function = _base.explained_function

GpuPlatform = _base.GpuPlatform
open_gpu = _base.open_gpu

Event = _base.Event
Stream = _base.Stream
StreamId = _base.StreamId
StreamLike = _base.StreamLike
SupportsCudaStream = _base.SupportsCudaStream
end_streams = _base.end_streams

Access = _resource.Access
AllocTag = _resource.AllocTag
BlockId = _resource.BlockId
BlockState = _resource.BlockState
DeviceBlock = _resource.DeviceBlock
DeviceMemoryResource = _resource.DeviceMemoryResource
Generation = _resource.Generation
LaunchRecorder = _resource.LaunchRecorder
live_resources = _resource.live_resources
space_of = _resource.space_of

current_tag = _resource.current_tag
tag = _resource.tag

CallbackMemoryResource = _resource.CallbackMemoryResource
GpuAsyncMemoryResource = _resource.GpuAsyncMemoryResource
GpuMemoryResource = _resource.GpuMemoryResource
HostMemoryResource = _resource.HostMemoryResource
ManagedMemoryResource = _resource.ManagedMemoryResource
PinnedMemoryResource = _resource.PinnedMemoryResource
DmaMemoryResource = _tensor.DmaMemoryResource
KindMemoryResource = _tensor.KindMemoryResource
PixelBufferResource = _tensor.PixelBufferResource
SharedMemoryResource = _tensor.SharedMemoryResource
adopt_storage = _tensor.adopt_storage
allocate_of_kind = _tensor.allocate_of_kind
kind_of = _tensor.kind_of

ArenaMemoryResource = _resource.ArenaMemoryResource
BinningMemoryResource = _resource.BinningMemoryResource
FixedSizeMemoryResource = _resource.FixedSizeMemoryResource
PoolMemoryResource = _resource.PoolMemoryResource

AbstractMemoryResource = _resource.AbstractMemoryResource
PlannedMemoryResource = _resource.PlannedMemoryResource
make_plan = _resource.make_plan
plan_is_sound = _resource.is_sound

AlignedResourceAdaptor = _resource.AlignedResourceAdaptor
BudgetReservation = _resource.BudgetReservation
FailureCallbackResourceAdaptor = _resource.FailureCallbackResourceAdaptor
FaultInjectionResourceAdaptor = _resource.FaultInjectionResourceAdaptor
LimitingResourceAdaptor = _resource.LimitingResourceAdaptor
PrefetchResourceAdaptor = _resource.PrefetchResourceAdaptor
PressureResourceAdaptor = _resource.PressureResourceAdaptor
Statistics = _resource.Statistics
StatisticsResourceAdaptor = _resource.StatisticsResourceAdaptor

CsvSink = _trace.CsvSink
DebugGuardResourceAdaptor = _trace.DebugGuardResourceAdaptor
GuardFinding = _trace.GuardFinding
LoggingResourceAdaptor = _trace.LoggingResourceAdaptor
LogRecord = _trace.LogRecord
MemorySink = _trace.MemorySink
OutstandingBlock = _trace.OutstandingBlock
RingSink = _trace.RingSink
TrackingResourceAdaptor = _trace.TrackingResourceAdaptor

NumpyAllocator = _interop.NumpyAllocator
check_numpy_table = _interop.check_numpy_table
watch_numpy = _interop.watch_numpy
device_hook_blocks = _interop.device_hook_blocks
device_hook_failures = _interop.device_hook_failures
device_hook_last_error = _interop.device_hook_last_error
native_library = _interop.native_library
set_device_hook = _interop.set_device_hook

arm_fault = _base.arm
disarm_faults = _base.disarm
system_calls_made = _base.calls_made
system_call_kinds = _base.kinds
fault_has_fired = _base.has_fired

AccessFlags = _vmm.AccessFlags
Mapping = _vmm.Mapping
PhysicalAllocation = _vmm.PhysicalAllocation
VirtualAddressRange = _vmm.VirtualAddressRange
VirtualMemoryManager = _vmm.VirtualMemoryManager
GrowableBuffer = _vmm.GrowableBuffer

BlockCache = _pool.BlockCache
BlockTables = _pool.BlockTables
CacheRange = _pool.CacheRange
install_cache_tensors = _pool.install_cache_tensors
AllocationLimit = _resource.AllocationLimit
Budget = _resource.Budget
install_limits = _resource.install_limits
note_shortage = _base.note
PhysicalLimit = _resource.PhysicalLimit
PoolBlock = _pool.PoolBlock
VirtualMemoryPool = _pool.VirtualMemoryPool
ElasticMemoryResource = _pool.ElasticMemoryResource
ClaimableBudget = _pool.ClaimableBudget
Participant = _pool.Participant
SharedBudget = _pool.SharedBudget
TenantBudget = _pool.TenantBudget
TenantBudgets = _pool.TenantBudgets
Accesses = _tensor.Accesses
Storage = _tensor.Storage
TensorMap = _tensor.TensorMap

SharedMemory = _share.SharedMemory
attach_shared_memory = _share.attach_shared_memory
allocate_shared_memory = _share.allocate_shared_memory
describe_fd = _share.describe_fd
why_no_shared_memory = _share.why_no_shared_memory
Latch = _share.Latch
pause = _share.pause
wait_for_descriptors = _share.wait_for_descriptors
claim_identity = _base.claim_identity
drop_identity = _base.drop_identity
live_identities = _base.live_identities
new_identity = _base.new_identity
share_block = _base.share_block

Tensor = _tensor.Tensor
empty = _tensor.empty
forget_destinations = _tensor.forget_destinations
full = _tensor.full
zeros = _tensor.zeros
install_tensors = _tensor.install_tensors
reinterpret = _tensor.reshaped
storage_from = _tensor.storage_from
take_buffer = _tensor.take_buffer
tensor_over = _tensor.over

from_dlpack = _interop.from_dlpack
install_dlpack = _interop.install
capsule_around = _interop.capsule_around
counting_deleter = _interop.counting_deleter
time_exchange = _interop.time_exchange

RecordingReport = _trace.RecordingReport
find_oddity = _trace.find_oddity
flush_recording = _trace.flush_recording
is_recording = _trace.is_recording
recording_report = _trace.recording_report
start_recording = _trace.start_recording
stop_recording = _trace.stop_recording
trace_counter = _trace.counter

TransferReport = _tensor.TransferReport
copy_by_driver = _tensor.copy_by_driver
stream_on = _tensor.stream_on
copy_into = _tensor.copy_into
copy_on_host = _tensor.copy_on_host
borrowed_stream = _tensor.borrowed
shares_streams = _tensor.shares_streams
check_same_layout = _tensor.same_layout
install_transfers = _tensor.install_transfers
tensors_overlap = _tensor.overlap

Loan = _tensor.Loan
fill_now = _tensor.fill_now
fill_on = _tensor.fill_on
fill_in_turn = _tensor.fill_in_turn

finish_streams_of = _tensor.finish_streams_of
finish_uses = _tensor.finish_uses
held_for_streams = _tensor.held_for_streams
mark_written = _tensor.mark_written
prepare_use = _tensor.prepare_use
reap_streams = _tensor.reap_streams
using = _tensor.using
written_until = _tensor.written_until

RingFile = _share.RingFile
RingReader = _share.RingReader
RingWriter = _share.RingWriter
SlotHold = _share.SlotHold

MAX_MESSAGE_BYTES = _share.MAX_MESSAGE_BYTES
MessageFacts = _share.MessageFacts
describe_ring = _share.describe_ring
describe_tensor = _share.describe_tensor
parse_message = _share.parse

_HEAP_TYPE = 1 << 9  # of classes that Python code made, which have signatures of their own
for _class in {each for each in globals().values() if type(each) is type and not each.__flags__ & _HEAP_TYPE}:
    _base.offer_signature(_class, _StubSignature())

_trace.start_from_environment()
if "TENSORMEM_TOP" in _os.environ:  # by name: what watches stands far above
    _importlib.import_module("tensormem.top.environment").start()
