"""Owns: the table of the calls that can block, each with a situation in which it does. Whoever adds a call that waits
adds a row, and one test walks all of them: timeout, Ctrl-C, close, fork, the end of the interpreter.

Must not know: how a call waits, or who tests it.
"""

import fcntl
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import tensormem as tm
from tensormem import errors, gl, mr
from tensormem.distributed.node_entry import entry
from tensormem.pools import BlockCache, SharedBudget, TenantPool, VirtualMemoryPool
from tensormem.sockets.connection import Connection
from tensormem.sockets.deadline import Deadline
from tensormem.streams import Stream
from tensormem.testing.gpus import simulated_gpu
from tensormem.web import PageServer

__all__ = ["BLOCKING_CALLS", "Blocked", "BlockingCall"]


class Blocked(NamedTuple):
    """A call that blocks until `release()`, or until `close()` ends what it waits for."""

    call: Callable[[], object]
    release: Callable[[], object]
    with_timeout: Callable[[float], object] | None = None
    close: Callable[[], object] | None = None


class BlockingCall(NamedTuple):
    """A row of the table: what is waited for, what `close` makes of the wait, and how to get into the situation."""

    waits_for: str
    prepare: Callable[[], Blocked]
    closed: type[errors.TensormemError] | None = None
    has_timeout: bool = True
    computes: bool = False
    """It does not sleep while it waits: the answer is being worked out."""
    why_not: Callable[[], str | None] = lambda: None
    """Why it cannot be tried on this machine."""


_kept: list[object] = []  # until the process ends


def _held_stream(where: str = "main") -> tuple[Stream, Callable[[], object]]:
    """A stream whose work goes on until the second is called."""
    stream, opened, started = Stream(where), threading.Event(), threading.Event()
    _kept.append(stream)
    stream.launch(started.set)
    stream.launch(opened.wait)
    started.wait()
    return stream, opened.set


def _stream_synchronize() -> Blocked:
    stream, release = _held_stream()
    return Blocked(stream.synchronize, release, lambda timeout: stream.synchronize(timeout))


def _stream_close() -> Blocked:
    stream, release = _held_stream()
    return Blocked(stream.close, release, lambda timeout: stream.close(timeout))


def _stream_wait() -> Blocked:
    stream, release = _held_stream()
    event, inline = stream.record(), Stream.default("main")
    return Blocked(lambda: inline.wait(event), release, close=event.close)


def _event_synchronize() -> Blocked:
    stream, release = _held_stream()
    event = stream.record()
    return Blocked(event.synchronize, release, lambda timeout: event.synchronize(timeout), event.close)


def _tensor_wait() -> Blocked:
    stream, release = _held_stream()
    target = tm.zeros(1000, "uint8")
    tm.copy.copy_into(target, tm.full(1000, 7, "uint8"), stream=stream)
    return Blocked(target.wait, release, lambda timeout: target.wait(timeout))


def _storage_wait() -> Blocked:
    stream, release = _held_stream()
    target = tm.zeros(1000, "uint8")
    tm.copy.copy_into(target, tm.full(1000, 7, "uint8"), stream=stream)
    return Blocked(target.storage.wait, release, lambda timeout: target.storage.wait(timeout))


def _being_written(memory: str = "mem") -> tuple[tm.Tensor, Callable[[], object]]:
    """A tensor that a copy on a stream goes into until the second is called."""
    stream, release = _held_stream()
    target = tm.zeros(1000, "uint8", memory=memory)
    tm.copy.copy_into(target, tm.full(1000, 7, "uint8"), stream=stream)
    return target, release


def _access(use: Callable[[tm.Tensor], object]) -> Callable[[], Blocked]:
    """A use of the bytes of a tensor that is being written."""

    def prepare() -> Blocked:
        target, release = _being_written()
        return Blocked(lambda: use(target), release)

    return prepare


def _send_of_busy_tensor() -> Blocked:
    target, release = _being_written("shm")
    here, there = tm.Channel.pair()
    _kept.append(there)
    return Blocked(lambda: here.send(target), release)


def _pool_close() -> Blocked:
    stream, release = _held_stream()
    pool = VirtualMemoryPool("1MiB", "64KiB")
    pool.deallocate(pool.allocate(size="64KiB"), stream=stream)
    return Blocked(pool.close, release, lambda timeout: pool.close(timeout))


def _cache_close() -> Blocked:
    stream, release = _held_stream()
    cache = BlockCache("1MiB", "64KiB")
    cache.deallocate(cache.allocate(2), stream)
    return Blocked(cache.close, release, lambda timeout: cache.close(timeout))


def _tenants_close() -> Blocked:
    stream, release = _held_stream()
    tenants = TenantPool("8MiB")
    tenant = tenants.register("a", "4MiB")
    tenant.deallocate(tenant.allocate(size="2MiB"), stream=stream)
    return Blocked(tenants.close, release)


def _tenant_unregister() -> Blocked:
    opened, started = threading.Event(), threading.Event()
    tenants = TenantPool("4MiB")

    def give_back(wanted: int) -> None:
        started.set()
        opened.wait()

    first = tenants.register("a", "4MiB", on_pressure=give_back)
    _kept.append(first.allocate("4MiB"))
    second = tenants.register("b", "4MiB")

    def press() -> None:
        with suppress(errors.TensormemError):
            second.allocate("2MiB")

    threading.Thread(target=press, daemon=True).start()
    started.wait()
    return Blocked(lambda: tenants.unregister("a", force=True), opened.set)


def _plan() -> Blocked:
    draw, stopped = Random(1), threading.Event()
    starts = [draw.randrange(100) for _ in range(1000)]
    hard = [
        tm.trace.Lifetime(str(number), start, start + 1 + draw.randrange(60), 1 + draw.randrange(2**40))
        for number, start in enumerate(starts)
    ]
    return Blocked(
        lambda: tm.trace.plan(hard, time_limit=300, progress=lambda progress: not stopped.is_set()), stopped.set
    )


def _page_server_wait() -> Blocked:
    path = Path(tempfile.mkdtemp(prefix="tensormem-waits-")) / "step.csv"
    path.write_text("id,lower,upper,size\na,0,4,16\n")
    server = PageServer(tm.trace.open(path)).__enter__()
    path.unlink()
    path.parent.rmdir()
    return Blocked(server.wait, server.close, lambda timeout: server.wait(timeout))


def _gl_call() -> Blocked:
    context, opened, started = gl.GlContext(), threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        opened.wait()

    threading.Thread(target=context.run, args=(hold,), daemon=True).start()
    started.wait()

    def close() -> None:
        # It waits until the context is gone, after having woken the others.
        threading.Thread(target=context.close, daemon=True).start()

    return Blocked(lambda: context.run(int), opened.set, close=close)


def _unanswered(answer: bytes) -> tuple[Connection, Callable[[], object]]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    _kept.append(there)
    return Connection(here), lambda: there.send(answer)


def _ask() -> Blocked:
    connection, release = _unanswered(b"{}\n")
    return Blocked(
        lambda: connection.ask(b"?\n", Deadline(None)),
        release,
        lambda timeout: connection.ask(b"?\n", Deadline(timeout)),
        connection.close,
    )


def _node_entry() -> Blocked:
    name = f"waits-{threading.get_native_id()}"
    first = entry(name)
    first.__enter__()

    def enter() -> None:
        with entry(name, 300):
            pass

    return Blocked(enter, lambda: first.__exit__(None, None, None))


def _block_use() -> Blocked:
    stream, release = _held_stream()
    resource = mr.HostMemoryResource()
    block = resource.allocate(1000, stream)
    resource.finish_block_use(block, stream, "write")
    return Blocked(lambda: resource.prepare_block_use(block, Stream.default("main"), "read"), release)


def _pool_allocate() -> Blocked:
    stream, release = _held_stream()
    pool = mr.PoolMemoryResource(mr.LimitingResourceAdaptor(mr.HostMemoryResource(), "2MiB"), pending_timeout=300)
    pool.deallocate(pool.allocate("2MiB", stream), stream)
    return Blocked(lambda: pool.allocate("2MiB"), release)


def _simulate_gpu() -> None:
    gpu = simulated_gpu()
    _kept.append(gpu)
    gpu.__enter__()


def _gpu_stream_synchronize() -> Blocked:
    _simulate_gpu()
    stream, release = _held_stream("gpu:0")
    return Blocked(stream.synchronize, release, lambda timeout: stream.synchronize(timeout))


def _gpu_event_synchronize() -> Blocked:
    _simulate_gpu()
    stream, release = _held_stream("gpu:0")
    event = stream.record()
    return Blocked(event.synchronize, release, lambda timeout: event.synchronize(timeout), event.close)


def _budget_claim() -> Blocked:
    opened = threading.Event()
    kept = SharedBudget.create("1MiB", name="keeps", on_pressure=lambda wanted: opened.wait())
    kept.claim("1MiB")
    budget = SharedBudget.attach(kept.fd, name="waits", patience=300)

    def release() -> None:
        kept.give_back("1MiB")
        opened.set()

    return Blocked(lambda: budget.claim("1MiB"), release, close=budget.close)


def _budget_attach() -> Blocked:
    kept = SharedBudget.create("1MiB")
    # As a participant does that was stopped while it changed its terms: a lock of an open file of its own.
    other = os.open(f"/proc/self/fd/{kept.fd}", os.O_RDWR | os.O_CLOEXEC)
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1, 0, 0)  # all but the byte of `kept`
    fcntl.fcntl(other, fcntl.F_OFD_SETLK, lock)
    return Blocked(lambda: SharedBudget.attach(kept.fd, patience=300), lambda: os.close(other))


def _ring_read() -> Blocked:
    ring = tm.FrameRing(2, 4)
    ring.attach_writer()
    ring.attach_reader()

    def release() -> None:
        with ring.write():
            pass

    return Blocked(lambda: ring.read(), release, lambda timeout: ring.read(timeout), ring.close)


def _ring_write() -> Blocked:
    ring = tm.FrameRing(1, 4, when_full="wait", mode="every")
    ring.attach_reader()
    with ring.write():
        pass
    return Blocked(lambda: ring.write(), lambda: ring.read().close(), lambda timeout: ring.write(timeout), ring.close)


def _channel_receive() -> Blocked:
    here, there = tm.Channel.pair()
    sent = tm.full(3, 7, "int8", memory="shm")
    return Blocked(here.receive, lambda: there.send(sent), lambda timeout: here.receive(timeout=timeout), here.close)


def _channel_send() -> Blocked:
    here, there = tm.Channel.pair()
    sent = tm.full(3, 7, "int8", memory="shm")

    def fill() -> None:
        while True:
            here.send(sent, timeout=0)

    def release() -> None:
        with suppress(errors.TimedOut):
            while True:
                there.receive(timeout=0).close()

    with suppress(errors.TimedOut):
        fill()
    return Blocked(lambda: here.send(sent), release, lambda timeout: here.send(sent, timeout=timeout), here.close)


def _channel_accept() -> Blocked:
    path = f"@tensormem-waits-{threading.get_native_id()}"
    listener = tm.Channel.listen(path)
    clients: list[tm.Channel] = []
    return Blocked(
        listener.accept,
        lambda: clients.append(tm.Channel.connect(path)),
        lambda timeout: listener.accept(timeout=timeout),
        listener.close,
    )


_TENSOR_USES: dict[str, Callable[[tm.Tensor], object]] = {
    "Tensor.tolist": tm.Tensor.tolist,
    "Tensor.clone": tm.Tensor.clone,
    "Tensor.fill_": lambda used: used.fill_(3),
    "Tensor.to": lambda used: used.to("pinned"),
    "Tensor.map": lambda used: used.map("r").unmap(),
    "Tensor.__dlpack__": lambda used: used.__dlpack__(),
    "bytes(Tensor)": bytes,
}

BLOCKING_CALLS = {
    "Stream.synchronize": BlockingCall("the work of a stream", _stream_synchronize),
    "Stream.close": BlockingCall("the work of a stream", _stream_close),
    "Stream.wait": BlockingCall(
        "an event, on a stream that runs inline", _stream_wait, errors.StreamMisuse, has_timeout=False
    ),
    "Event.synchronize": BlockingCall("a point in a stream", _event_synchronize, errors.StreamMisuse),
    "Stream.synchronize of a GPU": BlockingCall("the work of a GPU's stream", _gpu_stream_synchronize),
    "Event.synchronize of a GPU": BlockingCall("a point in its stream", _gpu_event_synchronize, errors.StreamMisuse),
    "Tensor.wait": BlockingCall("a copy into the tensor", _tensor_wait),
    "Storage.wait": BlockingCall("a copy into the storage", _storage_wait),
    **{
        name: BlockingCall("a copy into the tensor", _access(use), has_timeout=False)
        for name, use in _TENSOR_USES.items()
    },
    "Channel.send of a tensor": BlockingCall("a copy into the tensor", _send_of_busy_tensor, has_timeout=False),
    "VirtualMemoryPool.close": BlockingCall("the streams that use its memory", _pool_close),
    "BlockCache.close": BlockingCall("the streams that use its memory", _cache_close),
    "TenantPool.close": BlockingCall("the streams that use its memory", _tenants_close, has_timeout=False),
    "TenantPool.unregister": BlockingCall("a callback of the tenant", _tenant_unregister, has_timeout=False),
    "trace.plan": BlockingCall("a better plan", _plan, has_timeout=False, computes=True),
    "PageServer.wait": BlockingCall("the end of the server", _page_server_wait),
    "GlContext.run": BlockingCall(
        "other calls of the context", _gl_call, errors.PboDisconnected, has_timeout=False, why_not=gl.why_not
    ),
    "Connection.ask": BlockingCall("an answer, in top, hand-over and nodes", _ask, errors.ChannelClosed),
    "entry of a node": BlockingCall("another process that enters", _node_entry, has_timeout=False),
    "DeviceMemoryResource.prepare_block_use": BlockingCall("the uses of other streams", _block_use, has_timeout=False),
    "PoolMemoryResource.allocate": BlockingCall("memory that a stream still uses", _pool_allocate, has_timeout=False),
    "SharedBudget.claim": BlockingCall(
        "memory of other processes", _budget_claim, errors.UseAfterRelease, has_timeout=False
    ),
    "SharedBudget.attach": BlockingCall("the lock of the terms", _budget_attach, has_timeout=False),
    "FrameRing.read": BlockingCall("the next frame", _ring_read, errors.UseAfterRelease),
    "FrameRing.write": BlockingCall("a free frame", _ring_write, errors.UseAfterRelease),
    "Channel.receive": BlockingCall("the next message", _channel_receive, errors.ChannelClosed),
    "Channel.send": BlockingCall("room for a message", _channel_send, errors.ChannelClosed),
    "ChannelListener.accept": BlockingCall("the next connection", _channel_accept, errors.ChannelClosed),
}
"""Every call that can block until something else happens, by name."""
