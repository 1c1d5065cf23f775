"""Shared memory: what it is made of, who may do what with it, and which memory is the same."""

import ctypes
import fcntl
import gc
import mmap
import os
import stat
from pathlib import Path

import numpy as np
import pytest

import tensormem as tm
from support.holdings import open_descriptors
from support.python_processes import check_python, run_python
from tensormem import _core, errors
from tensormem.memories import MappedOwner, SharedOwner, allocate, is_available, providers
from tensormem.testing.faults import failing_system_call

SIZES = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def seals(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GET_SEALS)


def test_a_tensor_of_shared_memory_is_zeroed_and_works_like_any_other() -> None:
    tensor = tm.empty((3, 4), "int32", memory="shm")
    assert tensor.memory is tm.TensorMemory.SHM and tensor.space is tm.main and tensor.memory_reason == ""
    assert tensor.tolist() == [[0] * 4] * 3
    tensor.fill_(3)
    array = tensor.numpy()
    array[1, 2] = 9
    assert tensor[1].tolist() == [3, 3, 9, 3] and tensor.clone().memory == "mem"


def test_it_is_sealed_private_and_closed_in_other_programs_before_it_is_shared() -> None:
    tensor = tm.empty(100, memory="shm")
    fd = tensor.clone_fd()
    facts = os.fstat(fd)
    assert stat.S_IMODE(facts.st_mode) == 0o600 and facts.st_size == 400
    assert seals(fd) & SIZES == SIZES and seals(fd) & fcntl.F_SEAL_SEAL
    assert not os.get_inheritable(fd)
    for nbytes in (10, 10_000):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, nbytes)
    os.close(fd)


def test_nothing_of_it_has_a_name() -> None:
    before = set(os.listdir("/dev/shm"))
    with tm.zeros(1000, memory="shm") as tensor:
        fd = tensor.clone_fd()
        assert set(os.listdir("/dev/shm")) == before
        os.close(fd)


def test_the_same_memory_by_another_descriptor_is_recognised_as_long_as_one_lives() -> None:
    mine = tm.full(4, 1, "uint8", memory="shm")
    fds = [mine.clone_fd(), mine[1:].clone_fd(), mine.clone_fd(readonly=True)]
    others = [tm.from_fd(fd, readonly=fd == fds[2]) for fd in fds]
    copied = os.dup(fds[0])
    others.append(tm.from_fd(copied))
    for other in others:
        assert other.aliases(mine) and mine.aliases(other[1:]) and other.storage.id == mine.storage.id
        assert other.storage is not mine.storage
    first = mine.storage.id
    mine.close()
    for other in others[:-1]:
        other.close()
    again = tm.from_fd(copied)
    assert again.storage.id == first and again.tolist() == [1] * 4
    again.close()
    others[-1].close()
    fresh = tm.from_fd(copied)
    assert fresh.storage.id > first and fresh.tolist() == [1] * 4
    for fd in (*fds, copied):
        os.close(fd)


def test_identities_are_let_go_with_the_memory() -> None:
    gc.collect()
    before = _core.live_identities()
    tensor = tm.zeros(4, memory="shm")
    fd = tensor.clone_fd()
    other = tm.from_fd(fd)
    assert _core.live_identities() == before + 1
    os.close(fd)
    del tensor
    assert _core.live_identities() == before + 1
    other.close()
    assert _core.live_identities() == before and other.storage.owner is None


def test_two_memories_are_never_the_same() -> None:
    a, b = tm.zeros(4, memory="shm"), tm.zeros(4, memory="shm")
    fd = a.clone_fd()
    assert not a.aliases(b) and not tm.from_fd(fd).aliases(b)
    os.close(fd)


def test_identities_come_from_one_counter_for_all_kinds() -> None:
    made = [tm.empty(4, memory=kind) for _ in range(20) for kind in ("mem", "shm")]
    numbers = [tensor.storage.id for tensor in made]
    assert numbers == sorted(set(numbers)) and not made[0].aliases(made[1])


def test_a_trace_has_its_beginning_and_its_end_once_however_often_it_is_attached(tmp_path: Path) -> None:
    with tm.trace(tmp_path / "run.tmt"):
        with tm.zeros(1000, "uint8", memory="shm") as tensor:
            fd = tensor.clone_fd()
            tm.from_fd(fd).close()
            os.close(fd)
        tm.zeros(500, "uint8", memory="shm")
    with tm.trace.open(tmp_path / "run.tmt") as trace:
        ours = {number for number, reporter in trace.names.reporters.items() if reporter.name == "SharedMemoryResource"}
        events = [(event.kind, event.nbytes) for event in trace.events() if event.resource in ours and event.nbytes]
    assert events == [("allocate", 1000), ("deallocate", 1000), ("allocate", 500), ("deallocate", 500)]


def test_a_copy_between_two_mappings_of_the_same_bytes_is_right() -> None:
    mine = tm.from_numpy(np.arange(8, dtype=np.uint8)).clone()
    shared = tm.empty(8, "uint8", memory="shm")
    shared.copy_(mine)
    fd = shared.clone_fd()
    again = tm.from_fd(fd)
    os.close(fd)
    again[1:].copy_(shared[:-1])
    assert shared.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_whoever_gets_a_read_only_descriptor_cannot_map_it_to_write() -> None:
    tensor = tm.full(4096, 7, "uint8", memory="shm")
    fd = tensor.clone_fd(readonly=True)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, 4096)
    with pytest.raises(errors.InvalidArgument, match="readonly"):
        tm.from_fd(fd)
    other = tm.from_fd(fd, readonly=True)
    assert other.readonly and other.tolist()[0] == 7
    for refused in (lambda: other.map("w"), lambda: other.fill_(1)):
        with pytest.raises(errors.InvalidArgument):
            refused()
    tensor.fill_(8)
    assert other.tolist()[0] == 8
    os.close(fd)


def test_what_peers_may_only_read_cannot_be_written_by_any_trick() -> None:
    storage = allocate(4096, "shm", peers="r")
    tensor = tm.Tensor(storage, "uint8", 4096).fill_(5)
    fd = tensor.clone_fd()
    writable = os.open(f"/proc/self/fd/{storage.owner.export_fd()}", os.O_RDWR)
    for descriptor in (fd, writable):
        with pytest.raises(PermissionError):
            mmap.mmap(descriptor, 4096)
        with pytest.raises((PermissionError, OSError)):
            os.pwrite(descriptor, b"x", 0)
        with pytest.raises(errors.InvalidArgument):
            tm.from_fd(descriptor)
        assert tm.from_fd(descriptor, readonly=True)[0].item() == 5
    tensor.fill_(6)
    with pytest.raises(errors.InvalidArgument):
        allocate(64, "shm", peers="w")
    os.close(fd)
    os.close(writable)


@pytest.mark.parametrize("how", ["mapped.ptr", "other.ptr", "sealed.ptr"])
def test_writing_where_only_reading_is_allowed_faults(how: str) -> None:
    source = f"""
        import ctypes, os
        import tensormem as tm
        tensor = tm.zeros(4, "uint8", memory="shm")
        mapped = tensor.map("r")
        fd = tensor.clone_fd()
        other = tm.from_fd(fd, readonly=True)
        mine = tm.memories.allocate(4, "shm", peers="r")
        sealed = tm.from_fd(mine.owner.export_fd(), readonly=True)
        assert ctypes.string_at({how}, 4) == bytes(4)
        print("read", flush=True)
        ctypes.memset({how}, 1, 1)
        print("written")
    """
    result = run_python(source)
    assert result.stdout == "read\n" and result.returncode == -11


def test_a_mapping_attached_to_read_cannot_be_made_writable() -> None:
    check_python(
        """
        import ctypes, os
        import tensormem as tm
        fd = tm.zeros(4096, "uint8", memory="shm").clone_fd()
        other = tm.from_fd(fd, readonly=True)
        os.close(fd)
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(other.ptr), 4096, 3) == -1
        """
    )


def test_read_maps_are_a_mapping_of_their_own_that_is_made_once() -> None:
    tensor = tm.full(16, 3, "uint8", memory="shm")
    with tensor.map("r") as first, tensor.map("r") as second, tensor.map("rw") as writing:
        assert first.ptr == second.ptr != writing.ptr == tensor.ptr
        with memoryview(writing) as view:
            view[0] = 4
        assert bytes(first)[:2] == b"\x04\x03"
    assert tensor.storage.unplanned_accesses == 0
    assert tensor.as_readonly().__array_interface__["data"][0] == first.tensor.map("r").ptr


def test_huge_pages_are_real_or_refused() -> None:
    try:
        storage = allocate(3 << 20, "shm", huge_pages=True)
    except errors.MemoryUnavailable as refused:
        assert refused.kind == "shm" and refused.reason
        return
    assert storage.nbytes == 4 << 20 and storage.owner.huge and storage.ptr % (2 << 20) == 0
    ctypes.memset(storage.ptr, 1, storage.nbytes)
    with open("/proc/self/smaps") as file:
        area = file.read().split(f"{storage.ptr:x}-")[1].split("VmFlags")[0].splitlines()
    huge = sum(int(line.split()[1]) for line in area if line.startswith(("ShmemPmdMapped", "Shared_H", "Private_H")))
    assert huge == storage.nbytes >> 10


def test_huge_pages_that_cannot_be_had_are_refused_and_nothing_is_left() -> None:
    check_python(
        """
        import os
        os.environ["TENSORMEM_HUGE_PAGES"] = "never"
        import tensormem as tm
        from tensormem import errors
        before = len(os.listdir("/proc/self/fd"))
        tm.memories.allocate(4096, "shm").close()
        tm.mr.SharedMemoryResource().trim()
        try:
            tm.memories.allocate(3 << 20, "shm", huge_pages=True)
        except errors.MemoryUnavailable as refused:
            assert refused.kind == "shm" and "configuration" in refused.reason, refused
        else:
            raise AssertionError
        assert len(os.listdir("/proc/self/fd")) == before
        """
    )


def test_without_memfd_a_nameless_file_serves_and_is_not_given_away_unsealed() -> None:
    tm.mr.SharedMemoryResource().trim()
    with failing_system_call(1, "memfd_create", error=38):
        tensor = tm.full(100, 2, "uint8", memory="shm")
    assert not tensor.storage.owner.sealed and tensor.tolist() == [2] * 100
    with pytest.raises(errors.NotSupported, match="sealed"):
        tensor.clone_fd()
    fd = tensor.clone_fd(trust=True)
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600 and os.fstat(fd).st_nlink == 0
    with pytest.raises(errors.InvalidArgument, match="sealed"):
        tm.from_fd(fd)
    assert tm.from_fd(fd, trust=True).aliases(tensor)
    os.close(fd)
    with failing_system_call(1, "memfd_create", error=38), pytest.raises(errors.MemoryUnavailable):
        allocate(64, "shm", peers="r")


def test_it_is_there_and_says_so() -> None:
    assert is_available("shm") and is_available(tm.TensorMemory.SHM).reason == "" and "shm" in providers()
    owner = allocate(8, "shm").owner
    assert isinstance(owner, MappedOwner) and isinstance(owner, SharedOwner)
    del owner
    tm.mr.trim()  # what is kept would go first, and it would be tried again
    with failing_system_call(1, "mmap"):
        answer = is_available("shm")
    assert not answer and "refuses" in answer.reason
    with pytest.raises(errors.InvalidMemoryType):
        is_available("nothing_like_it")


@pytest.mark.parametrize("nbytes", [0, -1, 2**63 - 1, 2**62])
def test_impossible_sizes_are_refused_and_leave_nothing(nbytes: int) -> None:
    before = open_descriptors()
    with pytest.raises((errors.InvalidSize, errors.OutOfVirtualMemory)):
        allocate(nbytes, "shm")
    assert open_descriptors() == before


def test_other_spaces_and_alignments_are_refused() -> None:
    with pytest.raises(errors.MemoryUnavailable):
        tm.zeros(4, memory="shm", space="pinned")
    assert tm.empty(4, memory="shm", alignment=4096).ptr % 4096 == 0
    with pytest.raises(errors.InvalidAlignment):
        tm.empty(4, memory="shm", alignment=1 << 40)


def test_a_logical_shape_may_be_anything_that_fits() -> None:
    tensor = tm.zeros((10, 10), "uint8", memory="shm")
    assert tensor.set_logical_shape((5, 4)).shape == (5, 4) and tensor.set_logical_shape(100).aliases(tensor)
    with pytest.raises(errors.InvalidOffset):
        tensor.set_logical_shape(101)


def test_a_part_of_the_memory_is_described_with_offset_and_strides() -> None:
    tensor = tm.empty((4, 6), "int16", memory="shm")
    tensor.copy_(tm.from_numpy(np.arange(24, dtype=np.int16).reshape(4, 6)))
    part = tensor[1:, ::-2]
    fd = part.clone_fd()
    again = tm.from_fd(fd, "int16", part.shape, strides=part.strides, offset=part.offset)
    assert again.tolist() == part.tolist() == [[11, 9, 7], [17, 15, 13], [23, 21, 19]]
    assert tm.from_fd(fd, "int64").shape == (6,)
    os.close(fd)


def test_the_environment_can_forbid_everything_but_plain_memory() -> None:
    check_python(
        """
        import os
        os.environ["TENSORMEM_FORCE_MEM"] = "1"
        import tensormem as tm
        for options in ({"memory": "shm"}, {"use": "share"}, {"use": "gpu"}):
            tensor = tm.zeros(4, **options)
            assert tensor.memory == "mem" and "TENSORMEM_FORCE_MEM" in tensor.memory_reason, tensor.memory_reason
        assert tm.memories.allocate(64, "shm", huge_pages=True, peers="r").memory == "mem"
        """
    )


def test_without_a_choice_the_use_decides() -> None:
    shared = tm.zeros(4, use="share")
    assert shared.memory == "shm" and "share" in shared.memory_reason
    assert tm.zeros(4).memory == "mem" and tm.zeros(4, space="main").memory_reason != ""
    with pytest.raises(errors.InvalidArgument):
        tm.zeros(4, memory="shm", use="share")
    with pytest.raises(errors.InvalidMemoryType):
        tm.zeros(4, memory="SHM")


def test_what_is_kept_is_zeroed_for_the_next_and_given_back_by_trim() -> None:
    mr = tm.mr.SharedMemoryResource()
    mr.trim()
    tensor = tm.full(1 << 20, 7, "uint8", memory="shm", tag="frames")
    address = tensor.ptr
    tensor.close()
    assert mr.idle_bytes == 1 << 20
    again = tm.zeros(1 << 20, "uint8", memory="shm", tag="frames")
    assert again.ptr == address and not np.asarray(again).any()
    assert mr.idle_bytes == 0
    again.close()
    assert tm.mr.trim() >= 1 << 20
    assert mr.idle_bytes == 0


def test_what_another_process_was_given_is_never_used_again() -> None:
    mr = tm.mr.SharedMemoryResource()
    mr.trim()
    tensor = tm.full(4096, 7, "uint8", memory="shm")
    fd = tensor.clone_fd()
    tensor.close()
    assert mr.idle_bytes == 0
    assert os.pread(fd, 1, 0) == b"\7"
    os.close(fd)
