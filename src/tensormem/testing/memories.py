"""Owns: the conformance suite that every kind of tensor memory passes, ours and yours.

Joining it costs a class of a few lines:

    class TestMyMemory(MemoryConformance):
        def allocate(self, nbytes):
            return tm.memories.allocate(nbytes, "mine")

Must not know: any particular kind.
"""

import copy
import gc
import pickle
from itertools import pairwise, product
from pathlib import Path
from threading import Event, Timer

import pytest

from tensormem import errors, trace
from tensormem._core import host_driver, reap_streams, using
from tensormem.memories import Storage, TensorMemory
from tensormem.mr import limit, memory_stats, tag, trim
from tensormem.streams import Stream
from tensormem.tensor import Tensor, from_dlpack
from tensormem.testing.applicability import Suite, needs
from tensormem.testing.child_process import end_of_process, forked_child
from tensormem.testing.faults import each_system_call_fails
from tensormem.testing.held_call import held_call

__all__ = ["MemoryConformance"]


class MemoryConformance(Suite):
    """What every kind of memory that the CPU can map promises. Subclass it, and say in `allocate` how one is made."""

    def allocate(self, nbytes: int) -> Storage:
        """A fresh storage of `nbytes`."""
        raise NotImplementedError("say how to make the storage")

    follows_limits: bool = True
    """Whether limits in force charge it, as they charge whatever is made without a named resource."""

    has_an_address: bool = True
    """Whether it has one also while it is not mapped."""

    makes_system_calls: bool = True
    """Whether it is made by system calls of tensormem, which can be made to fail."""

    def live(self) -> int | None:
        """How many storages of the kind are out, if it can tell; the suite then looks for leaks."""
        return None

    @pytest.mark.parametrize("nbytes", [1, 7, 64, 4096, 1_000_003])
    def test_every_byte_can_be_written_and_read(self, nbytes: int) -> None:
        storage = self.allocate(nbytes)
        assert storage.nbytes >= nbytes and storage.mappable and not storage.readonly
        view = memoryview(Tensor(storage, "uint8", nbytes))
        pattern = (bytes(range(251)) * (nbytes // 251 + 1))[:nbytes]
        view[:] = pattern
        assert bytes(view) == pattern

    def test_it_says_where_and_what_it_is(self) -> None:
        storage = self.allocate(64)
        assert isinstance(storage.memory, str) and TensorMemory(storage.memory) == storage.memory
        assert storage.device == storage.space.to_dlpack()
        assert storage.driver is not None

    def test_addresses_suit_every_element_type(self) -> None:
        with self.allocate(64).map("r") as mapped:
            assert mapped.ptr % 16 == 0

    def test_storages_are_apart_and_have_identities_of_their_own(self) -> None:
        storages = [self.allocate(100) for _ in range(20)]
        maps = [storage.map("r") for storage in storages]
        ranges = sorted((mapped.ptr, mapped.ptr + mapped.nbytes) for mapped in maps)
        assert all(before[1] <= after[0] for before, after in pairwise(ranges))
        assert len({storage.id for storage in storages}) == 20

    def test_tensors_over_it_work_in_every_way(self) -> None:
        tensor = Tensor(self.allocate(24), "float32", (2, 3))
        tensor.fill_(2.5)
        assert tensor.T.tolist() == [[2.5, 2.5]] * 3
        assert from_dlpack(tensor).aliases(tensor)
        for again in (tensor.clone(), copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor, 5))):
            assert again.tolist() == tensor.tolist() and not again.aliases(tensor)

    @needs("follows_limits")
    def test_a_limit_in_force_counts_it_and_gets_all_of_it_back(self) -> None:
        with limit("64MiB") as counted:
            storage = self.allocate(4096)
        assert counted.used >= 4096
        storage.close()
        assert counted.used == 0

    @needs("follows_limits")
    def test_what_does_not_fit_is_refused_with_a_report_that_names_the_tag(self) -> None:
        with limit(1000) as counted, tag("activations"), pytest.raises(errors.OutOfBudget) as caught:
            self.allocate(4096)
        report = caught.value.report()
        assert report.requested >= 4096 and report.tag == "activations" and report.hints
        assert counted.used == 0

    def test_a_trace_has_it_once_with_its_tag_and_space(self, tmp_path: Path) -> None:
        with trace(tmp_path / "run.tmt"), tag("crossing"):
            storage = self.allocate(4096)
            space = str(storage.space)
            storage.close()
        with trace.open(tmp_path / "run.tmt") as recorded:
            lives = [life for life in recorded.blocks() if life.tag == "crossing"]
        assert [life.space for life in lives] == [space] and lives[0].nbytes >= 4096
        assert lives[0].end_ns is not None

    @needs("follows_limits")
    def test_the_statistics_of_the_process_agree_with_the_limit_to_the_byte(self) -> None:
        before = memory_stats()["charged_bytes"]
        with limit() as counted:
            storage = self.allocate(4096)
        assert memory_stats()["charged_bytes"] - before == counted.used >= 4096
        storage.close()
        assert memory_stats()["charged_bytes"] == before

    def test_it_is_not_closed_while_an_operation_uses_it(self) -> None:
        storage = self.allocate(4096)
        with using(storage), pytest.raises(BufferError):
            storage.close()
        assert not storage.closed
        storage.close()

    def test_what_a_stream_still_uses_is_given_back_when_it_has_passed(self) -> None:
        storage = self.allocate(4096)
        assert storage.block is not None, "a resource counts it"
        counted_by = storage.block.mr
        before = self.live()
        gate = Event()
        with Stream(host_driver()) as stream:
            stream.launch(gate.wait)
            target, source = Tensor(storage, "uint8", 4096), Tensor(self.allocate(4096), "uint8", 4096)
            target.copy_(source, stream=stream)
            target.close()  # does not wait, or nobody would open the gate
            gate.set()
            stream.synchronize()
        reap_streams()
        counted_by.reap_pending()
        assert self.live() == before  # one came and one went

    def test_waiting_for_a_copy_takes_a_timeout_and_lets_other_threads_run(self) -> None:
        target, source = (Tensor(self.allocate(4096), "uint8", 4096) for _ in range(2))
        source.fill_(7)
        gate = Event()
        with Stream(host_driver()) as stream:
            stream.launch(gate.wait)
            target.copy_(source, stream=stream)
            with pytest.raises(errors.TimedOut):
                target.wait(0.01)
            opener = Timer(0, gate.set)
            opener.start()
            assert target.wait(20).tolist() == [7] * 4096
            opener.join()

    @needs("has_an_address")
    def test_it_is_not_closed_while_a_call_was_given_its_address_as_a_number(self) -> None:
        storage = self.allocate(4096)
        with held_call(host_driver(), storage.ptr), pytest.raises(BufferError):
            storage.close()
        storage.close()

    def test_a_forked_child_can_use_it_or_is_told_and_the_parent_keeps_it(self) -> None:
        tensor = Tensor(self.allocate(4096), "uint8", 4096).fill_(7)

        def use() -> None:
            Tensor(self.allocate(4096), "uint8", 4096).fill_(5).close()
            tensor.close()

        assert forked_child(use) in ("done", "told")
        assert tensor.tolist() == [7] * 4096
        tensor.close()

    @needs("makes_system_calls")
    def test_whichever_system_call_fails_nothing_is_lost(self) -> None:
        self._make_anew()
        before, runs = memory_stats()["charged_bytes"], 0
        for raised in each_system_call_fails(self._make_anew):
            assert raised is None or isinstance(raised, errors.TensormemError | OSError | MemoryError), raised
            del raised
            runs += 1
            trim()
            assert memory_stats()["charged_bytes"] == before
        assert runs > 0, "makes_system_calls is declared wrongly"

    def _make_anew(self) -> None:
        trim()  # what was kept would come back without a system call
        self.allocate(4096).close()

    def test_a_process_that_ends_with_it_open_ends_well(self) -> None:
        end_of_process(self, "_left_open")

    def _left_open(self) -> object:
        tensor = Tensor(self.allocate(4096), "uint8", 4096).fill_(7)
        stream = Stream(host_driver())
        copied = tensor.clone()
        copied.copy_(tensor, stream=stream)
        return tensor, copied, stream, memoryview(Tensor(self.allocate(64), "uint8", 64))

    def test_closing_waits_for_exports_and_refuses_use_afterwards(self) -> None:
        storage = self.allocate(16)
        view = memoryview(Tensor(storage, "uint8", 16))
        with pytest.raises(BufferError):
            storage.close()
        view.release()
        storage.close()
        storage.close()
        with pytest.raises(errors.UseAfterFree):
            Tensor(storage, "uint8", 16)

    def test_what_is_written_in_one_map_is_read_in_the_next(self) -> None:
        tensor = Tensor(self.allocate(24), "uint16", (3, 4))
        with tensor.map("w") as mapped, memoryview(mapped) as view:
            assert view.shape == (3, 4) and not view.readonly and mapped.mapped
            for row, column in product(range(3), range(4)):
                view[row, column] = 10 * row + column
        with tensor.T[1].map("r") as mapped, memoryview(mapped) as view:
            assert view.tolist() == [1, 11, 21]
        with tensor.map("rw") as mapped, memoryview(mapped) as view:
            view[2, 3] += 1
        assert tensor[2].tolist() == [20, 21, 22, 24]

    def test_what_a_write_map_does_not_write_stays(self) -> None:
        tensor = Tensor(self.allocate(8), "uint8", 8).fill_(5)
        with tensor[2:4].map("w") as mapped, memoryview(mapped) as view:
            view[0] = 9
        assert tensor.tolist() == [5, 5, 9, 5, 5, 5, 5, 5]

    def test_a_read_map_cannot_be_written_through(self) -> None:
        storage = self.allocate(16)
        with storage.map("r") as mapped, memoryview(mapped) as view:
            assert mapped.readonly and view.readonly
            with pytest.raises(TypeError):
                view[0] = 1
        with pytest.raises(errors.InvalidArgument):
            Tensor(storage, "uint8", 16).as_readonly().map("w")

    def test_unmapping_twice_is_once_and_an_array_of_a_map_holds_it(self) -> None:
        storage = self.allocate(16)
        mapped = storage.map("rw")
        view = memoryview(mapped)
        for refused in (mapped.unmap, storage.close):
            with pytest.raises(BufferError):
                refused()
        view[3] = 7
        view.release()
        mapped.unmap()
        mapped.unmap()
        with pytest.raises(BufferError):
            memoryview(mapped)
        assert Tensor(storage, "uint8", 16)[3].item() == 7
        storage.close()

    def test_an_error_inside_a_map_ends_it(self) -> None:
        storage = self.allocate(16)
        with pytest.raises(KeyError), storage.map("rw"):
            raise KeyError
        storage.close()

    def test_accesses_without_a_map_are_counted_where_the_owner_is_told(self) -> None:
        storage = self.allocate(16)
        assert storage.unplanned_accesses == 0
        memoryview(Tensor(storage, "uint8", 16)).release()
        assert storage.unplanned_accesses == (1 if storage.bracketed else 0)

    def test_nothing_stays_behind(self) -> None:
        before = self.live()
        kept = [self.allocate(1000) for _ in range(10)]
        kept[0].close()
        view = Tensor(kept[1], "uint8", 10)[3:]
        del kept
        gc.collect()
        assert view.tolist() is not None
        del view
        gc.collect()
        assert self.live() == before

    def test_impossible_sizes_are_refused(self) -> None:
        for nbytes in (-1, 2**63):
            with pytest.raises((errors.TensormemError, ValueError, OverflowError, MemoryError)):
                self.allocate(nbytes)
