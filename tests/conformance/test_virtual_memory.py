"""The virtual memory of every driver passes the same suite. Adding one costs three lines."""

from tensormem.testing.virtual_memory import VirtualMemoryConformance
from tensormem.vmm import VirtualMemoryManager


class TestHostVirtualMemory(VirtualMemoryConformance):
    def make(self) -> VirtualMemoryManager:
        return VirtualMemoryManager("host")
