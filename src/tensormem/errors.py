"""Owns: every error that tensormem raises, and the tree they stand in.

Must not know: any other module of tensormem. Facts are attributes in the order of `__match_args__`; native code names
the same ones in native/base/status_codes.hpp and its failures become exceptions through `from_failure`.

In brackets: the builtin that each one also is, so that `except MemoryError` works as people expect.

    TensormemError
    |-- InvalidArgument (ValueError)        refused before anything happened
    |   |-- InvalidSize                     ... and ResourceError
    |   |-- InvalidAlignment                ... and ResourceError
    |   |-- InvalidOffset                   ... and VirtualMemoryError
    |   |-- InvalidPageSize                 ... and VirtualMemoryError
    |   |-- InvalidSpace
    |   |-- UnsuitableSpace
    |   |-- InvalidDType (TypeError)
    |   |-- InvalidMemoryType
    |   |-- InvalidPixelFormat
    |   |-- InvalidDLPack (BufferError)     a DLPack tensor that cannot be believed
    |   |-- InvalidLifetimes                a file or list of lifetimes that breaks a rule
    |   |-- TraceError                      a file that is no trace, or a damaged one
    |   |-- InvalidPlan                     a plan that cannot be followed
    |   `-- InvalidConfig
    |-- ResourceError                       memory could not be handed out, used or taken back
    |   |-- OutOfMemory (MemoryError)
    |   |   `-- NodeOutOfMemory             a worker of a cluster was refused
    |   |-- OutOfBudget (MemoryError)
    |   |-- InsufficientCapacity (ValueError)
    |   |-- UseAfterFree (RuntimeError)
    |   |-- ForeignBlock (ValueError)
    |   |-- StillExported (BufferError)
    |   |-- Untouchable (BufferError)       memory that neither the CPU nor a device reaches
    |   |-- OutOfBounds (RuntimeError)
    |   |-- StreamMisuse (RuntimeError)
    |   |-- ContextMisuse (RuntimeError)
    |   |-- PboMapped (BufferError)
    |   |-- PboDisconnected (RuntimeError)
    |   |-- CallbackFailed (RuntimeError)
    |   |-- DriverError (RuntimeError)
    |   |-- TenantNotFound (LookupError)
    |   |-- TenantAlreadyExists (ValueError)
    |   |-- TenantInUse (RuntimeError)
    |   |-- VirtualMemoryError
    |   |   |-- AlreadyMapped (ValueError)
    |   |   |-- NotMapped (ValueError)
    |   |   |-- StillMapped (RuntimeError)
    |   |   |-- StillHeld (BufferError)
    |   |   |-- UseAfterRelease (RuntimeError)
    |   |   |-- OutOfVirtualMemory (MemoryError)
    |   |   |-- OutOfPhysicalMemory (MemoryError)
    |   |   |-- TooManyMappings (MemoryError)
    |   |   |-- InvalidOffset               see above
    |   |   `-- InvalidPageSize             see above
    |   |-- InvalidSize                     see above
    |   `-- InvalidAlignment                see above
    |-- SharingError                        memory could not go to another process, or come from one
    |   |-- ChannelClosed (EOFError)
    |   |-- ChannelRefused (PermissionError)
    |   |-- UnsafeDirectory (PermissionError)   another user could reach the sockets in it
    |   |-- MalformedMessage (ValueError)
    |   |-- VersionSkew (ValueError)
    |   |-- WorkerDied (ConnectionError)
    |   |-- TimedOut (TimeoutError)
    |   |-- RingBusy (RuntimeError)
    |   |-- EndOfFrames (EOFError)
    |   `-- WriterGone (RuntimeError)
    |-- CannotWatch (ConnectionError)       a process cannot be watched by `tensormem top`, or cannot offer to be
    |-- DistributedError                    a worker could not be set up as declared, or a cluster not be asked
    |   `-- SetUpConflict (RuntimeError)
    |-- UnknownDeviceType (BufferError)     DLPack brought a device that no space stands for
    |-- CrossSpaceError (ValueError)
    |-- NoCompatibleComputeDevice (LookupError)
    |-- MemoryUnavailable (RuntimeError)
    |-- DriverUnavailable (RuntimeError)
    |-- NotSupported (NotImplementedError)
    `-- InternalError (SystemError)         a bug of ours
"""

from __future__ import annotations

import errno
import importlib
import os

TYPE_CHECKING = False  # typing itself is slow to import; type checkers take this name for true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar

    OutOfMemoryReport = Any  # tensormem.reports.out_of_memory.OutOfMemoryReport, which stands above


class TensormemError(Exception):
    """Any error of tensormem. `what` is the rule that was broken or the call that failed; "" when the facts say it all.

    >>> TensormemError("nothing fits").what
    'nothing fits'
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()
    _says: ClassVar[str] = "{what}"
    _hint: ClassVar[str] = ""

    what: str
    driver_code: int = 0
    """What the operating system or device driver answered; 0 when it was not asked."""

    def __init__(self, what: str = "") -> None:
        super().__init__(what)
        self.what = what

    def _keep(self, what: str, *facts: object) -> None:
        """Put the facts into `args`, from which pickle and copy rebuild the error; `__dict__` brings the rest."""
        self.args = facts
        self.what = what

    def __str__(self) -> str:
        text = self._says.format_map(vars(self)).rstrip(": ")
        if self.what and "{what}" not in self._says:
            text += f" ({self.what})"
        if self.driver_code and "{code}" not in self._says:
            text += f" (driver code {self.driver_code})"
        if self.what.endswith(" raised") and self.__cause__ is not None:  # a function of the user's
            text += f": {type(self.__cause__).__name__}: {self.__cause__}"
        return f"{text}. {self._hint}." if self._hint else text

    def __repr__(self) -> str:
        facts = [f"{name}={getattr(self, name)!r}" for name in self.__match_args__]
        if self.what:
            facts.append(f"what={self.what!r}")
        return f"{type(self).__name__}({', '.join(facts)})"


# --- Refused before anything happened --------------------------------------------------------------------------------


class InvalidArgument(TensormemError, ValueError):
    """A value that cannot be right, whatever the state of memory.

    >>> str(InvalidArgument("the width is no multiple of the element"))
    'invalid argument: the width is no multiple of the element'
    """

    _says = "invalid argument: {what}"


class ResourceError(TensormemError):
    """Memory could not be handed out, used or taken back: the family that resources and pools raise.

    >>> issubclass(OutOfBudget, ResourceError)
    True
    """

    _source: object = None
    _tag: str = ""

    def explain_with(self, resource: object, tag: str) -> bool:
        """Remember whom to ask who holds what; whether this is the first that is remembered."""
        if self._source is not None:
            return False
        self._source, self._tag = resource, tag
        return True

    def report(self) -> OutOfMemoryReport:
        """For a shortage: who holds what, how the free memory lies, and what would help, as things are now. `str` of it
        is for people. `InvalidArgument` for any other error, and for one that no resource raised.
        """
        if self._source is None:
            raise InvalidArgument("there is nothing to report: this is no shortage that came from a resource")
        # By name, and only when asked: reports stand far above errors.
        reports = importlib.import_module("tensormem.reports.out_of_memory")
        report: OutOfMemoryReport = reports.explain(self, self._source, self._tag)
        return report

    def __reduce__(self) -> tuple[object, ...]:
        # What has to be asked stays in its process.
        state = {name: value for name, value in self.__dict__.items() if name not in ("_source", "_tag")}
        return type(self), self.args, state


class VirtualMemoryError(ResourceError):
    """Addresses, pages, or the mappings between them: the family that virtual memory raises.

    >>> issubclass(AlreadyMapped, VirtualMemoryError)
    True
    """


class InvalidSize(ResourceError, InvalidArgument):
    """`nbytes` is zero where memory is needed, negative, too large to add, or no size at all; it is kept as given.

    >>> InvalidSize("12 potatoes").nbytes
    '12 potatoes'
    """

    __match_args__ = ("nbytes",)
    _says = "{nbytes!r:.80} is not a usable size"
    _hint = "Give a positive number of bytes that fits in 63 bits, or text such as '2MiB'"

    def __init__(self, nbytes: object, *, what: str = "") -> None:
        self._keep(what, nbytes)
        self.nbytes = nbytes


class InvalidAlignment(ResourceError, InvalidArgument):
    """`alignment` is not a power of two, or not one that can be had here.

    >>> InvalidAlignment(3).alignment
    3
    """

    __match_args__ = ("alignment",)
    _says = "cannot align to {alignment!r:.80}"
    _hint = "Give a power of two such as 256"

    def __init__(self, alignment: object, *, what: str = "") -> None:
        self._keep(what, alignment)
        self.alignment = alignment


class InvalidOffset(VirtualMemoryError, InvalidArgument):
    """[`offset`, `offset` + `size`) is not inside [0, `capacity`), or not on a page.

    >>> InvalidOffset(4096, 8192, capacity=8192).capacity
    8192
    """

    __match_args__ = ("offset", "size", "capacity")
    _says = "{size:,} bytes at offset {offset:,} do not fit a range of {capacity:,} bytes"
    _hint = "Stay inside the range and on multiples of its granularity"

    def __init__(self, offset: int, size: int, capacity: int, *, what: str = "") -> None:
        self._keep(what, offset, size, capacity)
        self.offset, self.size, self.capacity = offset, size, capacity


class InvalidPageSize(VirtualMemoryError, InvalidArgument):
    """`page_size` is not a power of two, or is under `minimum`, the smallest that the device maps.

    >>> InvalidPageSize(4096, minimum=65536).minimum
    65536
    """

    __match_args__ = ("page_size", "minimum")
    _says = "cannot use pages of {page_size:,} bytes: the minimum is {minimum:,}"
    _hint = "Give a power of two that is no smaller"

    def __init__(self, page_size: int, minimum: int, *, what: str = "") -> None:
        self._keep(what, page_size, minimum)
        self.page_size, self.minimum = page_size, minimum


class InvalidSpace(InvalidArgument):
    """`value` names no memory space and no compute device.

    >>> InvalidSpace("gpu:-1").value
    'gpu:-1'
    """

    __match_args__ = ("value",)
    _says = "{value!r:.80} is neither a memory space nor a compute device"
    _hint = "Write main (or cpu, host), pinned, managed, gpu:0, cuda:0 or rocm:0, or give a space, a device or a driver"

    def __init__(self, value: object, *, what: str = "") -> None:
        self._keep(what, value)
        self.value = value


class UnsuitableSpace(InvalidArgument):
    """`space` was understood, and cannot serve what was asked for, because of `reason`.

    >>> UnsuitableSpace("pinned", "virtual memory is mapped on main or a GPU").space
    'pinned'
    """

    __match_args__ = ("space", "reason")
    _says = "{space} cannot be used here: {reason}"

    def __init__(self, space: str, reason: str, *, what: str = "") -> None:
        self._keep(what, space, reason)
        self.space, self.reason = space, reason


class InvalidDType(InvalidArgument, TypeError):
    """`value` names no element type that DLPack can describe.

    >>> InvalidDType("float33").value
    'float33'
    """

    __match_args__ = ("value",)
    _says = "{value!r:.80} is not an element type"
    _hint = "Give a name such as 'float32', 'bfloat16' or 'float8_e4m3fn', or a native-endian NumPy or torch dtype"

    def __init__(self, value: object, *, what: str = "") -> None:
        self._keep(what, value)
        self.value = value


class InvalidMemoryType(InvalidArgument):
    """`text` names no kind of tensor memory.

    >>> InvalidMemoryType("Shm").text
    'Shm'
    """

    __match_args__ = ("text",)
    _says = "{text!r:.80} is not a kind of tensor memory"
    _hint = "The kinds are 'mem', 'shm', 'dma' and 'pbo', in lower case"

    def __init__(self, text: object, *, what: str = "") -> None:
        self._keep(what, text)
        self.text = text


class InvalidPixelFormat(InvalidArgument):
    """`text` names no format of pixels, or is the code of none.

    >>> InvalidPixelFormat("rgb9").text
    'rgb9'
    """

    __match_args__ = ("text",)
    _says = "{text!r:.80} is not a pixel format"
    _hint = (
        "The formats are rgb, rgba, bgr, bgra, grey, grey16, yuyv, uyvy, nv12, nv16, i420, planar_rgb, and of floats "
        "grey_f32, rgb_f32, rgba_f32, rgba_f16, planar_rgb_f32"
    )

    def __init__(self, text: object, *, what: str = "") -> None:
        self._keep(what, text)
        self.text = text


class InvalidDLPack(InvalidArgument, BufferError):
    """A DLPack tensor of another library breaks the rule `what`; `value` is the number that broke it.

    >>> InvalidDLPack(-1, what="ndim is negative").value
    -1
    """

    __match_args__ = ("value",)
    _says = "this DLPack tensor cannot be taken: {what}: {value}"
    _hint = "It was given back to its producer untouched; the mistake is there"

    def __init__(self, value: int, *, what: str = "") -> None:
        self._keep(what, value)
        self.value = value


class InvalidLifetimes(InvalidArgument):
    """Line `line` of `source`, a file of lifetimes (or "" for a list), breaks the rule `what`.

    >>> InvalidLifetimes("step.csv", 7, what="it has 3 columns").line
    7
    """

    __match_args__ = ("source", "line")
    _says = "line {line} of {source!r:.80} is not a lifetime"
    _hint = "The first line is id,lower,upper,size; then one block a line, alive from lower up to and without upper"

    def __init__(self, source: str, line: int, *, what: str = "") -> None:
        self._keep(what, source, line)
        self.source, self.line = source, line


class TraceError(InvalidArgument):
    """The file `source` is no trace, or is damaged at the byte `offset`; `what` says how that is known.

    >>> TraceError("run.tmt", 64, what="the checksum of a chunk is wrong").offset
    64
    """

    __match_args__ = ("source", "offset")
    _says = "{source!r:.80} cannot be read as a trace, at byte {offset}"
    _hint = "Traces are .tmt files, PyTorch memory snapshots, RMM logs and CSV files of lifetimes"

    def __init__(self, source: str, offset: int, *, what: str = "") -> None:
        self._keep(what, source, offset)
        self.source, self.offset = source, offset


class InvalidPlan(InvalidArgument):
    """The plan of `source` ("" for one in memory) is damaged, of another version, or lets blocks collide.

    >>> InvalidPlan("plan.json", what="its version is 7").source
    'plan.json'
    """

    __match_args__ = ("source",)
    _says = "the plan {source!r:.80} cannot be used"
    _hint = "Make it again with `tensormem plan`"

    def __init__(self, source: str, *, what: str = "") -> None:
        self._keep(what, source)
        self.source = source


class InvalidConfig(InvalidArgument):
    """The environment variable `variable` has the value `value` where `expected` is needed.

    >>> InvalidConfig("TENSORMEM_MAX_STREAMS", "many", "a whole number").expected
    'a whole number'
    """

    __match_args__ = ("variable", "value", "expected")
    _says = "{variable}={value!r:.80} cannot be used: it takes {expected}"
    _hint = "Change the environment variable or unset it"

    def __init__(self, variable: str, value: str, expected: str, *, what: str = "") -> None:
        self._keep(what, variable, value, expected)
        self.variable, self.value, self.expected = variable, value, expected


# --- Resources and their blocks --------------------------------------------------------------------------------------


class OutOfMemory(ResourceError, MemoryError):
    """`requested` bytes were not to be had: `total_free` were free, at most `largest_free` of them in one piece.

    >>> OutOfMemory(4096, total_free=4096, largest_free=1024).fragmentation
    0.75
    """

    __match_args__ = ("requested", "total_free", "largest_free")
    _says = "cannot allocate {requested:,} bytes: {total_free:,} are free, the largest piece has {largest_free:,}"
    _hint = "Free blocks, trim pools, or ask for less"

    def __init__(self, requested: int, total_free: int, largest_free: int, *, what: str = "") -> None:
        self._keep(what, requested, total_free, largest_free)
        self.requested, self.total_free, self.largest_free = requested, total_free, largest_free

    @property
    def fragmentation(self) -> float:
        """1 - largest / total: 0.0 when all free memory is one piece, or none is free."""
        return 1.0 - self.largest_free / self.total_free if self.total_free else 0.0


class NodeOutOfMemory(OutOfMemory):
    """A worker of a cluster was refused `requested` bytes. `total_free` is what its node has left, `largest_free` what
    this `worker` could still have of it; `node` is its node.

    >>> NodeOutOfMemory(4096, 1024, 512, worker="ray-1f3a (pid 77)", node="ray-c0ffee on box").worker
    'ray-1f3a (pid 77)'
    """

    __match_args__ = ("requested", "total_free", "largest_free", "worker", "node")
    _says = (
        "{worker} on node {node} cannot allocate {requested:,} bytes: the node has {total_free:,} left, "
        "and this worker can have {largest_free:,} of them"
    )
    _hint = "Free blocks, let the engine spill, declare a larger budget, or put the work on another node"

    def __init__(
        self, requested: int, total_free: int, largest_free: int, worker: str = "", node: str = "", *, what: str = ""
    ) -> None:
        super().__init__(requested, total_free, largest_free)
        self._keep(what, requested, total_free, largest_free, worker, node)
        self.worker, self.node = worker, node


class OutOfBudget(ResourceError, MemoryError):
    """A limit somebody set has no room for `requested` bytes; the other facts are those at the moment of the decision.

    >>> OutOfBudget(64, current=1000, remaining=24, limit=1024).remaining
    24
    """

    __match_args__ = ("requested", "current", "remaining", "limit")
    _says = "cannot allocate {requested:,} bytes: {current:,} of a budget of {limit:,} are taken, {remaining:,} remain"
    _hint = "Free blocks, reap pending ones, or raise the limit"

    def __init__(self, requested: int, current: int, remaining: int, limit: int, *, what: str = "") -> None:
        self._keep(what, requested, current, remaining, limit)
        self.requested, self.current, self.remaining, self.limit = requested, current, remaining, limit


class InsufficientCapacity(ResourceError, ValueError):
    """What was to be put into existing memory needs `needed` bytes, and it has `capacity`.

    >>> InsufficientCapacity(4096, capacity=1024).capacity
    1024
    """

    __match_args__ = ("needed", "capacity")
    _says = "{needed:,} bytes do not fit into memory of {capacity:,}; nothing was changed"
    _hint = "Allocate a bigger one, or put less into it"

    def __init__(self, needed: int, capacity: int, *, what: str = "") -> None:
        self._keep(what, needed, capacity)
        self.needed, self.capacity = needed, capacity


class UseAfterFree(ResourceError, RuntimeError):
    """The block of `generation` at `address` is no longer live: freed twice, or used after it was freed.

    >>> UseAfterFree(7, address=0x1000).generation
    7
    """

    __match_args__ = ("generation", "address")
    _says = "block {generation} at {address:#x} was already freed; nothing was changed"
    _hint = "Deallocate a block once, and after its last use"

    def __init__(self, generation: int, address: int, *, what: str = "") -> None:
        self._keep(what, generation, address)
        self.generation, self.address = generation, address


class ForeignBlock(ResourceError, ValueError):
    """The block of `generation` at `address` was never handed out by this resource.

    >>> ForeignBlock(7, address=0x1000).address
    4096
    """

    __match_args__ = ("generation", "address")
    _says = "block {generation} at {address:#x} is not of this resource; nothing was changed"
    _hint = "Give a block back to the resource that allocated it"

    def __init__(self, generation: int, address: int, *, what: str = "") -> None:
        self._keep(what, generation, address)
        self.generation, self.address = generation, address


class StillExported(ResourceError, BufferError):
    """`exports` arrays or other views are over the block of `generation` at `address`; it cannot go back before them.

    >>> StillExported(7, address=0x1000, exports=2).exports
    2
    """

    __match_args__ = ("generation", "address", "exports")
    _says = "block {generation} at {address:#x} has {exports} views; nothing was changed"
    _hint = "Drop the arrays over it first, or drop the block: it goes back after them"

    def __init__(self, generation: int, address: int, exports: int, *, what: str = "") -> None:
        self._keep(what, generation, address, exports)
        self.generation, self.address, self.exports = generation, address, exports


class Untouchable(ResourceError, BufferError):
    """`operation` needs bytes, and this is memory of `space` that neither the CPU nor a device can touch.

    >>> Untouchable("a copy", "main").operation
    'a copy'
    """

    __match_args__ = ("operation", "space")
    _says = "{operation} touches memory, and nobody can touch this: it is addresses of {space} without memory"
    _hint = "Abstract memory only answers what a stack would do; make the tensor with another resource"

    def __init__(self, operation: str, space: str, *, what: str = "") -> None:
        self._keep(what, operation, space)
        self.operation, self.space = operation, space


class OutOfBounds(ResourceError, RuntimeError):
    """Somebody wrote outside the block of `generation` at `address`, `offset` bytes from its start.

    >>> OutOfBounds(7, address=0x1000, offset=64).offset
    64
    """

    __match_args__ = ("generation", "address", "offset")
    _says = "a write outside block {generation} at {address:#x}, at offset {offset}"
    _hint = "Look for the write past the end in the code that used this block"

    def __init__(self, generation: int, address: int, offset: int, *, what: str = "") -> None:
        self._keep(what, generation, address, offset)
        self.generation, self.address, self.offset = generation, address, offset


class StreamMisuse(ResourceError, RuntimeError):
    """`stream` is unknown, destroyed, of another process, or cannot be used this way.

    >>> StreamMisuse(3, what="it was destroyed").stream
    3
    """

    __match_args__ = ("stream",)
    _says = "stream {stream} cannot be used"
    _hint = "Use a live stream of this process and driver"

    def __init__(self, stream: int, *, what: str = "") -> None:
        self._keep(what, stream)
        self.stream = stream


class ContextMisuse(ResourceError, RuntimeError):
    """The OpenGL context `context` is not one that `thread` can use now; 0 stands for no context at all.

    >>> ContextMisuse(0x1000, thread=7).thread
    7
    """

    __match_args__ = ("context", "thread")
    _says = "OpenGL context {context:#x} cannot be used on thread {thread}"
    _hint = "Use it on the thread where it is current, or a GlContext of ours, which any thread can use"

    def __init__(self, context: int, thread: int, *, what: str = "") -> None:
        self._keep(what, context, thread)
        self.context, self.thread = context, thread


class PboMapped(ResourceError, BufferError):
    """The pixel buffer `buffer` is mapped already, and has one map at a time.

    >>> PboMapped(3).buffer
    3
    """

    __match_args__ = ("buffer",)
    _says = "pixel buffer {buffer} is mapped; nothing was changed"
    _hint = "Unmap it first and drop the arrays over it, or ask for a persistent one"

    def __init__(self, buffer: int, *, what: str = "") -> None:
        self._keep(what, buffer)
        self.buffer = buffer


class PboDisconnected(ResourceError, RuntimeError):
    """The OpenGL context that memory belongs to is gone, because of `reason`.

    >>> PboDisconnected("the context was closed").reason
    'the context was closed'
    """

    __match_args__ = ("reason",)
    _says = "the OpenGL context is gone: {reason}"
    _hint = "Allocate again over a context that is alive"

    def __init__(self, reason: str, *, what: str = "") -> None:
        self._keep(what, reason)
        self.reason = reason


class CallbackFailed(ResourceError, RuntimeError):
    """A function of yours that a resource called did not do its part; what it raised is the `__cause__`.

    >>> str(CallbackFailed("the allocate function raised"))
    'a callback failed: the allocate function raised'
    """

    _says = "a callback failed: {what}"


class DriverError(ResourceError, RuntimeError):
    """`driver` answered `call` with `code`: what it calls it (`name`) and how it explains it (`explanation`).

    >>> DriverError(12, "ENOMEM", "Cannot allocate memory", call="mmap").name
    'ENOMEM'
    """

    __match_args__ = ("code", "name", "explanation", "call", "driver")
    _says = "the {driver} driver failed in {what}: {name} ({code}), {explanation}"

    def __init__(
        self, code: int, name: str, explanation: str, call: str = "", driver: str = "host", *, what: str = ""
    ) -> None:
        self._keep(what or call or "an unnamed call", code, name, explanation, call, driver)
        self.code, self.name, self.explanation = code, name, explanation
        self.call, self.driver, self.driver_code = call, driver, code


class TenantNotFound(ResourceError, LookupError):
    """No tenant is called `name`.

    >>> TenantNotFound("llama").name
    'llama'
    """

    __match_args__ = ("name",)
    _says = "there is no tenant {name!r:.80}"
    _hint = "Register it first"

    def __init__(self, name: object, *, what: str = "") -> None:
        self._keep(what, name)
        self.name = name


class TenantAlreadyExists(ResourceError, ValueError):
    """A tenant is called `name` already.

    >>> TenantAlreadyExists("llama").name
    'llama'
    """

    __match_args__ = ("name",)
    _says = "there is a tenant {name!r:.80} already; nothing was changed"
    _hint = "Choose another name, or unregister that one first"

    def __init__(self, name: object, *, what: str = "") -> None:
        self._keep(what, name)
        self.name = name


class TenantInUse(ResourceError, RuntimeError):
    """The tenant, or participant of a shared budget, called `name` still uses `nbytes`.

    >>> TenantInUse("llama", 4096).nbytes
    4096
    """

    __match_args__ = ("name", "nbytes")
    _says = "{name!r:.80} still uses {nbytes:,} bytes; nothing was changed"
    _hint = "Deallocate its memory first, or force it"

    def __init__(self, name: object, nbytes: int, *, what: str = "") -> None:
        self._keep(what, name, nbytes)
        self.name, self.nbytes = name, nbytes


# --- Virtual memory --------------------------------------------------------------------------------------------------


class AlreadyMapped(VirtualMemoryError, ValueError):
    """Something is mapped already in the `size` bytes at `offset`.

    >>> AlreadyMapped(0, size=2**21).size
    2097152
    """

    __match_args__ = ("offset", "size")
    _says = "{size:,} bytes at offset {offset:,} are already mapped; nothing was changed"
    _hint = "Unmap them first, or map elsewhere"

    def __init__(self, offset: int, size: int, *, what: str = "") -> None:
        self._keep(what, offset, size)
        self.offset, self.size = offset, size


class NotMapped(VirtualMemoryError, ValueError):
    """Nothing, or not everything, is mapped in the `size` bytes at `offset`.

    >>> NotMapped(0, size=2**21).offset
    0
    """

    __match_args__ = ("offset", "size")
    _says = "{size:,} bytes at offset {offset:,} are not mapped; nothing was changed"
    _hint = "Map them first, or name exactly what is mapped"

    def __init__(self, offset: int, size: int, *, what: str = "") -> None:
        self._keep(what, offset, size)
        self.offset, self.size = offset, size


class StillMapped(VirtualMemoryError, RuntimeError):
    """`mappings` mappings still need what is at `address`, so it cannot be released.

    >>> StillMapped(0x1000, mappings=2).mappings
    2
    """

    __match_args__ = ("address", "mappings")
    _says = "memory at {address:#x} cannot be released: mappings in use: {mappings}"
    _hint = "Unmap first; the order is unmap, release pages, release addresses"

    def __init__(self, address: int, mappings: int, *, what: str = "") -> None:
        self._keep(what, address, mappings)
        self.address, self.mappings = address, mappings


class StillHeld(VirtualMemoryError, BufferError):
    """`holds` views or holders need the block at `address` where it is.

    >>> StillHeld(0x1000, holds=1).holds
    1
    """

    __match_args__ = ("address", "holds")
    _says = "the block at {address:#x} is in use where it is: holders: {holds}; nothing was changed"
    _hint = "Drop the arrays and memoryviews over it, and leave the `with` blocks that hold it, first"

    def __init__(self, address: int, holds: int, *, what: str = "") -> None:
        self._keep(what, address, holds)
        self.address, self.holds = address, holds


class UseAfterRelease(VirtualMemoryError, RuntimeError):
    """The range, physical memory or pool was released or closed before; `address` is its address or handle.

    >>> UseAfterRelease(0x7F0000000000).address
    139637976727552
    """

    __match_args__ = ("address",)
    _says = "what was at {address:#x} has been released; nothing was changed"
    _hint = "Keep the object open for as long as it is used, or make a new one"

    def __init__(self, address: int, *, what: str = "") -> None:
        self._keep(what, address)
        self.address = address


class OutOfVirtualMemory(VirtualMemoryError, MemoryError):
    """No run of `requested` free addresses exists.

    >>> OutOfVirtualMemory(2**60).requested == 2**60
    True
    """

    __match_args__ = ("requested",)
    _says = "cannot reserve {requested:,} bytes of addresses"
    _hint = "Reserve less, release ranges, or look at `ulimit -v`"

    def __init__(self, requested: int, *, what: str = "") -> None:
        self._keep(what, requested)
        self.requested = requested


class OutOfPhysicalMemory(VirtualMemoryError, MemoryError):
    """`requested` bytes of pages are needed and `available` can be had.

    >>> OutOfPhysicalMemory(2**21, available=0).available
    0
    """

    __match_args__ = ("requested", "available")
    _says = "cannot back {requested:,} bytes with pages: {available:,} are available"
    _hint = "Unmap or trim what is idle, or raise the limit"

    def __init__(self, requested: int, available: int, *, what: str = "") -> None:
        self._keep(what, requested, available)
        self.requested, self.available = requested, available


class TooManyMappings(VirtualMemoryError, MemoryError):
    """The process has `current` mappings and the system allows `limit`.

    >>> TooManyMappings(65530, limit=65530).limit
    65530
    """

    __match_args__ = ("current", "limit")
    _says = "no more mappings: {current:,} of {limit:,} are in use"
    _hint = "Map larger runs of pages, or raise `sysctl vm.max_map_count`"

    def __init__(self, current: int, limit: int, *, what: str = "") -> None:
        self._keep(what, current, limit)
        self.current, self.limit = current, limit


# --- Between processes -----------------------------------------------------------------------------------------------


class SharingError(TensormemError):
    """Memory could not go to another process, or come from one: the family that channels and frame rings raise.

    >>> issubclass(WriterGone, SharingError)
    True
    """


class ChannelClosed(SharingError, EOFError):
    """The channel was closed, here or at the other end.

    >>> str(ChannelClosed("the other end is gone"))
    'the channel is closed: the other end is gone'
    """

    _says = "the channel is closed: {what}"


class ChannelRefused(SharingError, PermissionError):
    """The process at the other end runs as user `uid`, who is not let in.

    >>> ChannelRefused(1000).uid
    1000
    """

    __match_args__ = ("uid",)
    _says = "the process at the other end runs as user {uid}, who is not let in"
    _hint = "Allow it with uids=(...) on this side, if it may have this memory"

    def __init__(self, uid: int, *, what: str = "") -> None:
        self._keep(what, uid)
        self.uid = uid


class UnsafeDirectory(SharingError, PermissionError):
    """The directory `path` cannot have sockets of this user in it, because of `reason`.

    >>> UnsafeDirectory("/tmp/tensormem-0", "it belongs to user 7, not to 0").path
    '/tmp/tensormem-0'
    """

    __match_args__ = ("path", "reason")
    _says = "the directory {path} is not safe for sockets: {reason}"
    _hint = "Remove it, or make it a directory of this user with mode 0700"

    def __init__(self, path: str, reason: str, *, what: str = "") -> None:
        self._keep(what, path, reason)
        self.path, self.reason = path, reason


class MalformedMessage(SharingError, ValueError):
    """A message that cannot be believed; `position` is the byte at which that showed. Nothing of it was kept.

    >>> MalformedMessage(20, what="the memory has more than 64 dimensions").position
    20
    """

    __match_args__ = ("position",)
    _says = "this message cannot be taken (byte {position}): {what}"
    _hint = "It was dropped, and what came with it is closed; the mistake is at the other end"

    def __init__(self, position: int, *, what: str = "") -> None:
        self._keep(what, position)
        self.position = position


class VersionSkew(SharingError, ValueError):
    """What arrived is of version `theirs`, of a format or of tensormem itself, and this side knows `ours`.

    >>> VersionSkew(2, 1).theirs
    2
    """

    __match_args__ = ("theirs", "ours")
    _says = "what arrived is of version {theirs}, and this side knows {ours}"
    _hint = "Run the same version of tensormem on both sides"

    def __init__(self, theirs: int | str, ours: int | str, *, what: str = "") -> None:
        self._keep(what, theirs, ours)
        self.theirs, self.ours = theirs, ours


class WorkerDied(SharingError, ConnectionError):
    """The process `worker` of node `node` had the memory that was asked for, and is gone.

    >>> WorkerDied("4711", "a", what="it was killed").worker
    '4711'
    """

    __match_args__ = ("worker", "node")
    _says = "worker {worker} of node {node} is gone, and memory that only it had with it"
    _hint = "Make the tensor again, or keep a copy where it can be lost"

    def __init__(self, worker: str, node: str, *, what: str = "") -> None:
        self._keep(what, worker, node)
        self.worker, self.node = worker, node


class TimedOut(SharingError, TimeoutError):
    """Nothing happened for `seconds` seconds.

    >>> TimedOut(0.5, what="no new frame").seconds
    0.5
    """

    __match_args__ = ("seconds",)
    _says = "nothing happened for {seconds} s: {what}"

    def __init__(self, seconds: float, *, what: str = "") -> None:
        self._keep(what, seconds)
        self.seconds = seconds


class RingBusy(SharingError, RuntimeError):
    """The place in the frame ring is taken; for a writer, by the process `pid`.

    >>> RingBusy(4711).pid
    4711
    """

    __match_args__ = ("pid",)
    _says = "the place in the frame ring is taken (process {pid})"
    _hint = "A ring has one writer and at most 62 readers; close one first"

    def __init__(self, pid: int, *, what: str = "") -> None:
        self._keep(what, pid)
        self.pid = pid


class EndOfFrames(SharingError, EOFError):
    """The writer of the frame ring closed it after frame `number`, and all of them have been read.

    >>> EndOfFrames(900).number
    900
    """

    __match_args__ = ("number",)
    _says = "no frame follows number {number}: the writer closed the ring"

    def __init__(self, number: int, *, what: str = "") -> None:
        self._keep(what, number)
        self.number = number


class WriterGone(SharingError, RuntimeError):
    """The writer of the frame ring, the process `pid`, died after frame `number`; all of them have been read.

    >>> WriterGone(4711, number=900).number
    900
    """

    __match_args__ = ("pid", "number")
    _says = "the writer of the frame ring, process {pid}, died after frame {number}"
    _hint = "Read with wait_for_writer=True to wait for a new one; ring.attach_writer makes this process the writer"

    def __init__(self, pid: int, number: int, *, what: str = "") -> None:
        self._keep(what, pid, number)
        self.pid, self.number = pid, number


# --- Clusters --------------------------------------------------------------------------------------------------------


class DistributedError(TensormemError):
    """A worker could not be set up as declared, or a cluster could not be asked.

    >>> issubclass(SetUpConflict, DistributedError)
    True
    """


class SetUpConflict(DistributedError, RuntimeError):
    """Somebody declared something else before: in this process, or for this node.

    >>> str(SetUpConflict("this node has a budget of 1 GiB")).split(". ")[0]
    'this worker cannot be set up as declared: this node has a budget of 1 GiB'
    """

    _says = "this worker cannot be set up as declared: {what}"
    _hint = "Tear down what is there, or declare the same"


# --- Spaces, devices, and what this machine does not have ------------------------------------------------------------


class CannotWatch(TensormemError, ConnectionError):
    """`tensormem top` cannot watch the process `pid`, because of `reason`; 0 stands for any process of this user.

    >>> CannotWatch(4711, "it has ended").pid
    4711
    """

    __match_args__ = ("pid", "reason")
    _says = "cannot watch process {pid}: {reason}"
    _hint = "A process can be watched if it was started with TENSORMEM_TOP=1, or has called serve of tensormem.top"

    def __init__(self, pid: int, reason: str, *, what: str = "") -> None:
        self._keep(what, pid, reason)
        self.pid, self.reason = pid, reason


class UnknownDeviceType(TensormemError, BufferError):
    """DLPack's `device_type` is no memory space of ours; `name` is what DLPack calls it, or "" if it knows it neither.

    >>> UnknownDeviceType(8, "METAL").name
    'METAL'
    """

    __match_args__ = ("device_type", "name")
    _says = "no memory space stands for DLPack device type {device_type}"
    _hint = "Copy the data to CPU, CUDA or ROCm memory first"

    def __init__(self, device_type: int, name: str = "", *, what: str = "") -> None:
        self._keep(what or name or "DLPack 1.3 does not know it either", device_type, name)
        self.device_type, self.name = device_type, name


class CrossSpaceError(TensormemError, ValueError):
    """Memory of two spaces, `left` and `right`, was used together. Nothing moves by itself.

    >>> str(CrossSpaceError("main", "gpu:0"))
    'cannot use memory of main and gpu:0 together. Move one of them explicitly, with .to(space).'
    """

    __match_args__ = ("left", "right")
    _says = "cannot use memory of {left} and {right} together"
    _hint = "Move one of them explicitly, with .to(space)"

    def __init__(self, left: object, right: object, *, what: str = "") -> None:
        self._keep(what, left, right)
        self.left, self.right = left, right


class NoCompatibleComputeDevice(TensormemError, LookupError):
    """No compute device of this machine can reach `space`; `op` is what it was wanted for, or None.

    >>> NoCompatibleComputeDevice("gpu:0", "contract").op
    'contract'
    """

    __match_args__ = ("space", "op")
    _says = "no compute device of this machine reaches {space}; asked for: {op}"
    _hint = "Move the data to a space that one reaches; `tensormem doctor` tells which drivers work here, and why not"

    def __init__(self, space: object, op: object = None, *, what: str = "") -> None:
        self._keep(what, space, op)
        self.space, self.op = space, op


class MemoryUnavailable(TensormemError, RuntimeError):
    """This machine cannot give memory of `kind`, because of `reason`.

    >>> MemoryUnavailable("dma", "there is no /dev/dma_heap").kind
    'dma'
    """

    __match_args__ = ("kind", "reason")
    _says = "memory of kind {kind} is not available: {reason}"
    _hint = "Choose another kind, or none to let one be chosen; `tensormem doctor` tells what works here"

    def __init__(self, kind: str, reason: str, *, what: str = "") -> None:
        self._keep(what, kind, reason)
        self.kind, self.reason = kind, reason


class DriverUnavailable(TensormemError, RuntimeError):
    """The driver `driver` cannot run here, because of `reason`.

    >>> DriverUnavailable("cuda", "libcuda.so.1 was not found").driver
    'cuda'
    """

    __match_args__ = ("driver", "reason")
    _says = "the {driver} driver is not available: {reason}"
    _hint = "`tensormem doctor` tells which drivers work here, and what to do"

    def __init__(self, driver: str, reason: str, *, what: str = "") -> None:
        self._keep(what, driver, reason)
        self.driver, self.reason = driver, reason


class NotSupported(TensormemError, NotImplementedError):
    """The driver or this system has no such operation.

    >>> str(NotSupported("prefetch"))
    'not supported here: prefetch'
    """

    _says = "not supported here: {what}"


class InternalError(TensormemError, SystemError):
    """tensormem broke a promise to itself.

    >>> InternalError("the ledger does not add up").what
    'the ledger does not add up'
    """

    _says = "internal error: {what}"
    _hint = "This is a bug in tensormem; please report it with this message"


# How the drivers with numbers of their own explain them: (name, explanation, call, driver). 0 is errno.
_vendors: dict[int, Callable[[int, str], tuple[str, str, str, str]]] = {}


def register_vendor(numbers: int, explain: Callable[[int, str], tuple[str, str, str, str]]) -> None:
    """Let `explain(code, call)` name and explain the failures that native code marks with `numbers`."""
    _vendors[numbers] = explain


def from_system(call: str, error: OSError) -> TensormemError:
    """The error for a system call that Python made and the operating system refused; one of ours stays what it is.

    >>> from_system("dup", OSError(24, "Too many open files")).driver_code
    24
    """
    if isinstance(error, TensormemError):
        return error
    code = error.errno or 0
    if code == errno.EMFILE:
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        call += f" (this process may have {most} descriptors, RLIMIT_NOFILE, and has them all)"
    return from_failure("DriverError", call, code, (code, 0, 0, 0))


def from_failure(class_name: str, what: str, driver_code: int, facts: tuple[int, ...]) -> TensormemError:
    """The exception for a native failure. Facts beyond those of the class are dropped; native code always sends four.

    >>> from_failure("OutOfBudget", "limit", 0, (64, 1000, 24, 1024)).args
    (64, 1000, 24, 1024)
    """
    kind = globals().get(class_name)
    if not (isinstance(kind, type) and issubclass(kind, TensormemError)):
        return InternalError(f"native code reported the unknown failure {class_name!r}: {what}")
    if kind is DriverError and len(facts) > 1 and facts[1] in _vendors:
        return DriverError(driver_code, *_vendors[facts[1]](driver_code, what))
    if kind is DriverError:
        name = errno.errorcode.get(driver_code, "an unknown code")
        return DriverError(driver_code, name, os.strerror(driver_code), call=what)
    needed = len(kind.__match_args__)
    if len(facts) < needed:
        return InternalError(f"native code gave {class_name} {len(facts)} facts where it takes {needed}: {what}")
    if kind is OutOfBounds and facts[2] >= 2**63:  # a write before the block: native code gives it as two's complement
        facts = (*facts[:2], facts[2] - 2**64)
    if kind is TimedOut:  # native code counts nanoseconds
        return TimedOut(facts[0] / 1e9, what=what)
    if kind is InvalidDLPack and facts[0] >= 2**63:
        facts = (facts[0] - 2**64, *facts[1:])
    build: Callable[..., TensormemError] = kind
    error = build(*facts[:needed], what=what)
    if driver_code:
        error.driver_code = driver_code
    return error
