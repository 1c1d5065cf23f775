"""Owns: a stand-in for CuPy, which cannot run without the CUDA runtime.

It has only what CuPy documents and our allocator calls: `cupy.cuda.MemoryPointer`, `UnownedMemory`, `Device` and
`get_current_stream`. It proves nothing about CuPy itself.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any


class UnownedMemory:
    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self.device_id = ptr, size, device_id
        self._owner = owner


class MemoryPointer:
    def __init__(self, mem: UnownedMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset


@contextmanager
def stand_in_for_cupy(device: int = 0, stream: int = 0) -> Iterator[SimpleNamespace]:
    """Inside, `import cupy` gives the stand-in. What `as` gives has CuPy's current device and stream, to be changed."""
    now = SimpleNamespace(device=SimpleNamespace(id=device), stream=SimpleNamespace(ptr=stream))
    cupy: Any = ModuleType("cupy")
    cupy.cuda = SimpleNamespace(
        MemoryPointer=MemoryPointer,
        UnownedMemory=UnownedMemory,
        Device=lambda: now.device,
        get_current_stream=lambda: now.stream,
    )
    before = sys.modules.get("cupy")
    sys.modules["cupy"] = cupy
    try:
        yield now
    finally:
        if before is None:
            del sys.modules["cupy"]
        else:
            sys.modules["cupy"] = before
