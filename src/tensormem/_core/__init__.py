"""Owns: the compiled modules. Nothing else in tensormem is compiled, and the layers above import the names assigned
here, so that the order of the layers can be checked.
"""

import importlib as _importlib
import os as _os

from tensormem._core import accesses as _accesses
from tensormem._core import adaptors as _adaptors
from tensormem._core import block_cache as _block_cache
from tensormem._core import budgets as _budgets
from tensormem._core import claims as _claims
from tensormem._core import dlpack as _dlpack
from tensormem._core import drivers as _drivers
from tensormem._core import elastic as _elastic
from tensormem._core import faults as _faults
from tensormem._core import fills as _fills
from tensormem._core import frame_ring as _frame_ring
from tensormem._core import gpus as _gpus
from tensormem._core import growable_buffer as _growable_buffer
from tensormem._core import identities as _identities
from tensormem._core import interop as _interop
from tensormem._core import kinds as _kinds
from tensormem._core import leaves as _leaves
from tensormem._core import maps as _maps
from tensormem._core import observers as _observers
from tensormem._core import plans as _plans
from tensormem._core import resources as _resources
from tensormem._core import shared_budget as _shared_budget
from tensormem._core import shared_memory as _shared_memory
from tensormem._core import shortages as _shortages
from tensormem._core import storages as _storages
from tensormem._core import streams as _streams
from tensormem._core import suballocators as _suballocators
from tensormem._core import tenant_budgets as _tenant_budgets
from tensormem._core import tensor_messages as _tensor_messages
from tensormem._core import tensors as _tensors
from tensormem._core import traces as _traces
from tensormem._core import transfers as _transfers
from tensormem._core import uses as _uses
from tensormem._core import virtual_memory as _virtual_memory
from tensormem._core import virtual_memory_pool as _virtual_memory_pool

Driver = _drivers.Driver
abstract_driver = _drivers.abstract
driver_from_capsule = _drivers.from_capsule
host_driver = _drivers.host
host_facts = _drivers.host_facts

GpuPlatform = _gpus.GpuPlatform
open_gpu = _gpus.open_gpu

Event = _streams.Event
Stream = _streams.Stream
StreamId = _streams.StreamId
StreamLike = _streams.StreamLike
SupportsCudaStream = _streams.SupportsCudaStream

Access = _resources.Access
AllocTag = _resources.AllocTag
BlockId = _resources.BlockId
BlockState = _resources.BlockState
DeviceBlock = _resources.DeviceBlock
DeviceMemoryResource = _resources.DeviceMemoryResource
Generation = _resources.Generation
LaunchRecorder = _resources.LaunchRecorder
live_resources = _resources.live_resources
space_of = _resources.space_of

current_tag = _resources.current_tag
tag = _resources.tag

CallbackMemoryResource = _leaves.CallbackMemoryResource
GpuAsyncMemoryResource = _leaves.GpuAsyncMemoryResource
GpuMemoryResource = _leaves.GpuMemoryResource
HostMemoryResource = _leaves.HostMemoryResource
ManagedMemoryResource = _leaves.ManagedMemoryResource
PinnedMemoryResource = _leaves.PinnedMemoryResource
DmaMemoryResource = _kinds.DmaMemoryResource
KindMemoryResource = _kinds.KindMemoryResource
PixelBufferResource = _kinds.PixelBufferResource
SharedMemoryResource = _kinds.SharedMemoryResource
adopt_storage = _kinds.adopt_storage
allocate_of_kind = _kinds.allocate_of_kind
kind_of = _kinds.kind_of

ArenaMemoryResource = _suballocators.ArenaMemoryResource
BinningMemoryResource = _suballocators.BinningMemoryResource
FixedSizeMemoryResource = _suballocators.FixedSizeMemoryResource
PoolMemoryResource = _suballocators.PoolMemoryResource

AbstractMemoryResource = _plans.AbstractMemoryResource
PlannedMemoryResource = _plans.PlannedMemoryResource
make_plan = _plans.make_plan
plan_is_sound = _plans.is_sound

AlignedResourceAdaptor = _adaptors.AlignedResourceAdaptor
BudgetReservation = _adaptors.BudgetReservation
FailureCallbackResourceAdaptor = _adaptors.FailureCallbackResourceAdaptor
FaultInjectionResourceAdaptor = _adaptors.FaultInjectionResourceAdaptor
LimitingResourceAdaptor = _adaptors.LimitingResourceAdaptor
PrefetchResourceAdaptor = _adaptors.PrefetchResourceAdaptor
PressureResourceAdaptor = _adaptors.PressureResourceAdaptor
Statistics = _adaptors.Statistics
StatisticsResourceAdaptor = _adaptors.StatisticsResourceAdaptor

CsvSink = _observers.CsvSink
DebugGuardResourceAdaptor = _observers.DebugGuardResourceAdaptor
GuardFinding = _observers.GuardFinding
LoggingResourceAdaptor = _observers.LoggingResourceAdaptor
LogRecord = _observers.LogRecord
MemorySink = _observers.MemorySink
OutstandingBlock = _observers.OutstandingBlock
RingSink = _observers.RingSink
TrackingResourceAdaptor = _observers.TrackingResourceAdaptor

NumpyAllocator = _interop.NumpyAllocator
check_numpy_table = _interop.check_numpy_table
device_hook_blocks = _interop.device_hook_blocks
device_hook_failures = _interop.device_hook_failures
device_hook_last_error = _interop.device_hook_last_error
native_library = _interop.native_library
set_device_hook = _interop.set_device_hook

arm_fault = _faults.arm
disarm_faults = _faults.disarm
system_calls_made = _faults.calls_made
system_call_kinds = _faults.kinds
fault_has_fired = _faults.has_fired

AccessFlags = _virtual_memory.AccessFlags
Mapping = _virtual_memory.Mapping
PhysicalAllocation = _virtual_memory.PhysicalAllocation
VirtualAddressRange = _virtual_memory.VirtualAddressRange
VirtualMemoryManager = _virtual_memory.VirtualMemoryManager
GrowableBuffer = _growable_buffer.GrowableBuffer

BlockCache = _block_cache.BlockCache
AllocationLimit = _budgets.AllocationLimit
Budget = _budgets.Budget
install_limits = _budgets.install_limits
note_shortage = _shortages.note
PhysicalLimit = _budgets.PhysicalLimit
PoolBlock = _virtual_memory_pool.PoolBlock
VirtualMemoryPool = _virtual_memory_pool.VirtualMemoryPool
ElasticMemoryResource = _elastic.ElasticMemoryResource
ClaimableBudget = _claims.ClaimableBudget
Participant = _shared_budget.Participant
SharedBudget = _shared_budget.SharedBudget
TenantBudget = _tenant_budgets.TenantBudget
TenantBudgets = _tenant_budgets.TenantBudgets
Accesses = _accesses.Accesses
Storage = _storages.Storage
TensorMap = _maps.TensorMap

SharedMemory = _shared_memory.SharedMemory
attach_shared_memory = _shared_memory.attach_shared_memory
allocate_shared_memory = _shared_memory.allocate_shared_memory
describe_fd = _shared_memory.describe_fd
why_no_shared_memory = _shared_memory.why_no_shared_memory
claim_identity = _identities.claim_identity
drop_identity = _identities.drop_identity
live_identities = _identities.live_identities
new_identity = _identities.new_identity
share_block = _identities.share_block

Tensor = _tensors.Tensor
empty = _tensors.empty
forget_destinations = _tensors.forget_destinations
full = _tensors.full
zeros = _tensors.zeros
install_tensors = _tensors.install
reinterpret = _tensors.reshaped
storage_from = _tensors.storage_from
take_buffer = _tensors.take_buffer
tensor_over = _tensors.over

from_dlpack = _dlpack.from_dlpack
install_dlpack = _dlpack.install
capsule_around = _dlpack.capsule_around
counting_deleter = _dlpack.counting_deleter
time_exchange = _dlpack.time_exchange

RecordingReport = _traces.RecordingReport
flush_recording = _traces.flush_recording
is_recording = _traces.is_recording
recording_report = _traces.recording_report
start_recording = _traces.start_recording
stop_recording = _traces.stop_recording
trace_counter = _traces.counter

TransferReport = _transfers.TransferReport
copy_by_driver = _transfers.copy_by_driver
stream_on = _transfers.stream_on
copy_into = _transfers.copy_into
copy_on_host = _transfers.copy_on_host
borrowed_stream = _transfers.borrowed
shares_streams = _transfers.shares_streams
check_same_layout = _transfers.same_layout
install_transfers = _transfers.install
tensors_overlap = _transfers.overlap

Loan = _uses.Loan
fill_now = _fills.fill_now
fill_on = _fills.fill_on

finish_streams_of = _uses.finish_streams_of
finish_uses = _uses.finish_uses
held_for_streams = _uses.held_for_streams
mark_written = _uses.mark_written
prepare_use = _uses.prepare_use
reap_streams = _uses.reap_streams
using = _uses.using
written_until = _uses.written_until

RingFile = _frame_ring.RingFile
RingReader = _frame_ring.RingReader
RingWriter = _frame_ring.RingWriter
SlotHold = _frame_ring.SlotHold

MAX_MESSAGE_BYTES = _tensor_messages.MAX_MESSAGE_BYTES
MessageFacts = _tensor_messages.MessageFacts
describe_ring = _tensor_messages.describe_ring
describe_tensor = _tensor_messages.describe_tensor
parse_message = _tensor_messages.parse

_traces.start_from_environment()
if "TENSORMEM_TOP" in _os.environ:  # by name: what watches stands far above
    _importlib.import_module("tensormem.top.environment").start()
