"""The virtual memory of every driver passes the same suite. Adding one costs three lines."""

from tensormem._core import abstract_driver
from tensormem.testing.virtual_memory import VirtualMemoryConformance
from tensormem.vmm import VirtualMemoryManager


class TestHostVirtualMemory(VirtualMemoryConformance):
    def make(self) -> VirtualMemoryManager:
        return VirtualMemoryManager("host")


class TestAbstractVirtualMemory(VirtualMemoryConformance):
    def make(self) -> VirtualMemoryManager:
        return VirtualMemoryManager(abstract_driver())


# Abstract memory has no bytes to write or to share: what is about them does not concern it.
ABOUT_BYTES = (
    VirtualMemoryConformance.test_a_mapped_range_is_not_released,
    VirtualMemoryConformance.test_a_move_keeps_contents_access_and_aliases,
    VirtualMemoryConformance.test_a_part_of_physical_memory_is_mapped_or_refused_where_handles_are_whole,
    VirtualMemoryConformance.test_an_exported_handle_comes_back_as_the_same_memory,
    VirtualMemoryConformance.test_closed_physical_memory_stays_until_its_last_mapping_is_gone,
    VirtualMemoryConformance.test_contents_belong_to_the_pages_not_to_the_addresses,
    VirtualMemoryConformance.test_eight_threads_change_one_range_and_every_count_is_right,
    VirtualMemoryConformance.test_mapped_pages_outlive_the_names_of_everything_but_the_range,
    VirtualMemoryConformance.test_one_page_at_two_addresses_shows_the_same_bytes,
    VirtualMemoryConformance.test_what_is_no_exported_memory_is_refused,
)
for each in ABOUT_BYTES:
    setattr(TestAbstractVirtualMemory, each.__name__, None)
