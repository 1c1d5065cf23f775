"""Owns: the conformance suite that every driver of memory that the CPU reaches passes, ours and yours.

Joining it costs a class of a few lines:

    class TestMyDriver(DriverConformance):
        def driver(self):
            return my_driver()

Must not know: any particular driver.
"""

import ctypes
import threading

import pytest

from tensormem import errors
from tensormem._core import Driver
from tensormem.drivers import resolve
from tensormem.mr import HostMemoryResource
from tensormem.streams import Event, Stream

__all__ = ["DriverConformance"]


class DriverConformance:
    """What every driver promises of its devices, streams, events, copies and fills. Say in `driver` which one."""

    def driver(self) -> Driver:
        """The driver under test."""
        raise NotImplementedError("say which driver")

    def test_it_has_devices_and_describes_them(self) -> None:
        driver = self.driver()
        assert driver.device_count >= 1 and driver.name
        free, total = driver.memory_info(0)
        assert 0 < free <= total and driver.device_info(0)["total_bytes"] > 0
        with pytest.raises(errors.TensormemError):
            driver.device_info(driver.device_count)

    def test_work_on_a_stream_keeps_its_order(self) -> None:
        done: list[int] = []
        with Stream(self.driver()) as stream:
            for number in range(50):
                stream.launch(done.append, number)
            stream.synchronize()
            assert stream.done
        assert done == list(range(50))

    def test_one_stream_waits_for_a_point_in_another(self) -> None:
        done: list[str] = []
        driver = self.driver()
        with Stream(driver) as first, Stream(driver) as second:
            first.launch(done.append, "first")
            second.wait(first.record())
            second.launch(done.append, "second")
            second.synchronize()
        assert done == ["first", "second"]

    def test_an_event_that_was_never_recorded_is_done(self) -> None:
        assert Event(self.driver()).done

    def test_a_destroyed_stream_is_misuse(self) -> None:
        stream = Stream(self.driver())
        stream.close()
        with pytest.raises(errors.StreamMisuse):
            stream.synchronize()

    def test_bytes_are_copied_in_the_order_of_the_stream(self) -> None:
        driver = self.driver()
        first, second = ctypes.create_string_buffer(b"abcdefgh", 8), ctypes.create_string_buffer(8)
        with Stream(driver) as stream:
            driver.copy(ctypes.addressof(second), ctypes.addressof(first), 8, stream)
            stream.synchronize()
        assert second.raw == b"abcdefgh"

    def test_rows_apart_by_a_pitch_are_copied_and_their_gaps_are_not(self) -> None:
        driver = self.driver()
        first, second = ctypes.create_string_buffer(b"ab..cd..", 8), ctypes.create_string_buffer(b"------", 6)
        driver.copy_pitched(ctypes.addressof(second), 3, ctypes.addressof(first), 4, (2, 2, 1))
        Stream.default(driver).synchronize()
        assert second.raw == b"ab-cd-"

    def test_a_value_is_repeated_by_a_fill(self) -> None:
        driver = self.driver()
        memory = ctypes.create_string_buffer(8)
        driver.fill(ctypes.addressof(memory), 0x0201, 2, (8, 1, 1))
        Stream.default(driver).synchronize()
        assert memory.raw == b"\x01\x02" * 4

    def test_it_says_where_it_is_to_the_one_resolver(self) -> None:
        driver = self.driver()
        assert resolve(driver).driver is driver

    def test_memory_that_a_call_is_given_is_in_use_until_it_returns(self) -> None:
        """Also when it refuses; what was freed is taken by no call."""
        driver, mr = self.driver(), HostMemoryResource()
        block = mr.allocate(64)
        driver.fill(block, 7, 1, (64, 1, 1))
        Stream.default(driver).synchronize()
        assert bytes(block) == b"\x07" * 64
        with pytest.raises(errors.InvalidArgument):
            driver.copy(block, 0, 64)
        assert block.export_count == 0
        mr.deallocate(block)
        with pytest.raises(errors.UseAfterFree):
            driver.fill(block, 7, 1, (64, 1, 1))

    def test_waiting_for_a_stream_lets_other_threads_run(self) -> None:
        gate = threading.Event()
        with Stream(self.driver()) as stream:
            stream.launch(gate.wait)
            opener = threading.Timer(0, gate.set)
            opener.start()
            stream.synchronize()  # with the GIL held, nobody would open the gate
            opener.join()
            assert stream.done

    def test_what_a_stream_was_given_is_done_or_refused_when_it_is_closed_twice(self) -> None:
        stream = Stream(self.driver())
        done: list[int] = []
        stream.launch(done.append, 1)
        stream.synchronize()
        stream.close()
        stream.close()
        assert done == [1]

    def test_copies_of_nothing_and_from_nowhere_are_refused(self) -> None:
        driver = self.driver()
        memory = ctypes.create_string_buffer(8)
        for destination, source, nbytes in ((0, ctypes.addressof(memory), 8), (ctypes.addressof(memory), 4096, 0)):
            with pytest.raises(errors.InvalidArgument):
                driver.copy(destination, source, nbytes)
