"""Memory and events of the simulated CUDA driver in two processes, by handles of 64 bytes."""

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest

from support.bare_gpu import INVALID_VALUE, BareGpu
from tensormem.testing import simulated_gpu
from tensormem.testing.gpus import simulated_environment

INVALID_CONTEXT = 201
CHILD = """
    import ctypes, sys
    from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

    class Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 64)]

    cuda, context, handle = ctypes.CDLL("libcuda.so.1"), c_void_p(), Handle.from_buffer_copy(bytes.fromhex(sys.argv[1]))
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
"""
MEMORY = """
    address, seen = c_uint64(), ctypes.create_string_buffer(16)
    assert cuda.cuIpcOpenMemHandle_v2(byref(address), handle, c_uint(1)) == 0
    assert cuda.cuMemcpyDtoH_v2(seen, address, c_size_t(16)) == 0
    assert cuda.cuMemsetD8_v2(address, 3, c_size_t(16)) == 0
    assert cuda.cuIpcCloseMemHandle(address) == 0
    assert cuda.cuIpcCloseMemHandle(address) == 1
    print(seen.raw.hex())
"""
EVENT = """
    event, stream = c_void_p(), c_void_p()
    assert cuda.cuIpcOpenEventHandle(byref(event), handle) == 0
    assert cuda.cuStreamCreate(byref(stream), c_uint(1)) == 0
    assert cuda.cuStreamWaitEvent(stream, event, c_uint(0)) == 0
    print(cuda.cuEventQuery(event), cuda.cuStreamQuery(stream), flush=True)
    assert cuda.cuStreamSynchronize(stream) == 0
    assert cuda.cuEventSynchronize(event) == 0
    print(cuda.cuEventQuery(event), flush=True)
"""


class Handle(ctypes.Structure):
    """CUipcMemHandle, CUipcEventHandle."""

    _fields_ = (("bytes", ctypes.c_uint8 * 64),)


@pytest.fixture
def bare() -> Iterator[BareGpu]:
    with simulated_gpu(1, "64MiB") as gpu:
        yield BareGpu(gpu)


def start(program: str, handle: Handle) -> subprocess.Popen[str]:
    text = textwrap.dedent(CHILD) + textwrap.dedent(program)
    environment = {**os.environ, **simulated_environment(1, "64MiB")}
    command = [sys.executable, "-c", text, bytes(handle.bytes).hex()]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_plain_memory_is_the_same_in_two_processes(bare: BareGpu) -> None:
    address, stream, handle = ctypes.c_uint64(bare.allocate()), bare.stream(), Handle()
    bare.ask("MemsetD8Async", address, ctypes.c_ubyte(7), ctypes.c_size_t(4096), stream)
    bare.ask("StreamSynchronize", stream)
    bare.ask("IpcGetMemHandle", ctypes.byref(handle), address)
    child = start(MEMORY, handle)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out.strip()) == (0, "07" * 16)
    seen = ctypes.create_string_buffer(20)
    assert bare.copy(ctypes.addressof(seen), address.value, 20, stream) == 0
    assert seen.raw == bytes([3] * 16 + [7] * 4)


def test_an_event_of_one_process_holds_a_stream_of_another(bare: BareGpu) -> None:
    stream, event, handle = bare.stream(), bare.event(6), Handle()
    held = threading.Event()
    bare.launch(stream, held.wait)
    bare.ask("EventRecord", event, stream)
    bare.ask("IpcGetEventHandle", ctypes.byref(handle), event)
    child = start(EVENT, handle)
    assert child.stdout is not None
    assert child.stdout.readline().split() == ["600", "600"]
    held.set()
    assert child.stdout.readline().strip() == "0"
    assert child.wait(60) == 0
    child.stdout.close()


def test_handles_are_refused_where_they_mean_nothing(bare: BareGpu) -> None:
    handle, address, event = Handle(), ctypes.c_uint64(), ctypes.c_void_p()
    assert bare.call("IpcOpenMemHandle_v2", ctypes.byref(address), handle, ctypes.c_uint(1)) == INVALID_VALUE
    assert bare.call("IpcOpenEventHandle", ctypes.byref(event), handle) == INVALID_VALUE
    assert bare.call("IpcGetEventHandle", ctypes.byref(handle), bare.event()) == INVALID_VALUE
    assert bare.call("EventCreate", ctypes.byref(event), ctypes.c_uint(4)) == INVALID_VALUE
    bare.ask("IpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(bare.allocate()))
    assert bare.call("IpcOpenMemHandle_v2", ctypes.byref(address), handle, ctypes.c_uint(1)) == INVALID_CONTEXT
