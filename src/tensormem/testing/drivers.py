"""Owns: the conformance suite that every driver of memory that the CPU reaches passes, ours and yours.

Joining it costs a class of a few lines:

    class TestMyDriver(DriverConformance):
        def driver(self):
            return my_driver()

Must not know: any particular driver.
"""

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tensormem import errors
from tensormem._core import Driver, host_facts
from tensormem.drivers import resolve
from tensormem.mr import HostMemoryResource
from tensormem.streams import Event, Stream
from tensormem.testing.applicability import Suite, needs
from tensormem.testing.child_process import end_of_process, forked_child
from tensormem.testing.faults import each_system_call_fails

__all__ = ["DriverConformance"]

_PATIENCE = 20.0


class DriverConformance(Suite):
    """What every driver promises of its devices, streams, events, copies and fills. Say in `driver` which one."""

    is_the_hosts: bool = False
    """Whether it is our driver of the host, whose system calls can be made to fail."""

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

    def test_every_wait_takes_a_timeout(self) -> None:
        gate = threading.Event()
        with Stream(self.driver()) as stream:
            stream.launch(gate.wait)
            event = stream.record()
            try:
                for wait in (stream.synchronize, stream.close, event.synchronize):
                    with pytest.raises(errors.TimedOut):
                        wait(0.01)
            finally:
                gate.set()
            event.synchronize(_PATIENCE)
            stream.synchronize(_PATIENCE)

    def test_a_wait_for_an_event_that_is_closed_ends_by_name(self) -> None:
        gate = threading.Event()
        with Stream(self.driver()) as stream, ThreadPoolExecutor(1) as threads:
            stream.launch(gate.wait)
            event = stream.record()
            try:
                waiting = threads.submit(event.synchronize, _PATIENCE)
                event.close()  # before the wait or in it
                with pytest.raises(errors.StreamMisuse):
                    waiting.result(_PATIENCE)
            finally:
                gate.set()

    def test_a_forked_child_can_use_it_or_is_told_and_the_parent_goes_on(self) -> None:
        driver, gate = self.driver(), threading.Event()
        with Stream(driver) as stream:
            stream.launch(gate.wait)

            def use() -> None:
                with Stream(driver) as own:
                    own.launch(int)
                    own.synchronize()

            try:
                assert forked_child(use) in ("done", "told")
                assert forked_child(stream.synchronize) == "told", "the parent's stream has no thread there"
            finally:
                gate.set()
            stream.synchronize()

    @needs("is_the_hosts")
    def test_whichever_system_call_fails_nothing_is_held(self) -> None:
        driver = self.driver()

        def scenario() -> None:
            size = driver.granularity()[1]
            address = driver.reserve(size)
            try:
                driver.physical_destroy(driver.physical_create(size))
            finally:
                driver.release(address, size)

        held = ("reservations", "mappings", "physicals", "committed_bytes")
        before, runs = _counted(held), 0
        for raised in each_system_call_fails(scenario):
            assert raised is None or isinstance(raised, errors.TensormemError | OSError | MemoryError), raised
            runs += 1
        # A release that the system refused is tried again by the next one: at the end nothing is left.
        scenario()
        assert _counted(held) == before
        assert runs > 0

    def test_a_process_that_ends_with_work_queued_ends_well(self) -> None:
        """What was queued is done first."""
        end_of_process(self, "_left_open")

    def _left_open(self) -> object:
        stream = Stream(self.driver())
        for _ in range(10):
            stream.launch(int)
        return stream, stream.record(), Stream(self.driver())

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


def _counted(names: tuple[str, ...]) -> list[object]:
    facts: dict[str, object] = {**host_facts()}
    return [facts[name] for name in names]
