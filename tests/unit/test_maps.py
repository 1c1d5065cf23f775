"""Maps: an access with a beginning and an end, arrays that never dangle, and owners that are told exactly once."""

import gc
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import tensormem as tm
from support.bracketed import Bracketed
from support.hooks import unraisable
from tensormem import errors
from tensormem.memories import MappedOwner


def bracketed(nbytes: int = 24, readonly: bool = False) -> tuple[Bracketed, tm.Tensor]:
    owner = Bracketed(nbytes)
    return owner, tm.Tensor(owner.storage(readonly=readonly), "uint8", nbytes)


def test_a_map_has_the_shape_and_strides_of_its_tensor() -> None:
    tensor = tm.from_numpy(np.arange(12, dtype=np.int32).reshape(3, 4))[:, ::-2]
    with tensor.map("rw") as mapped:
        array = np.asarray(mapped)
        assert array.tolist() == [[3, 1], [7, 5], [11, 9]] and array.strides == (16, -8)
        array[0, 0] = 100
        del array
    assert tensor.tolist()[0] == [100, 1]


def test_a_read_map_cannot_be_written_through() -> None:
    tensor = tm.zeros(4, "uint8")
    with tensor.map("r") as mapped:
        assert mapped.readonly and memoryview(mapped).readonly and not np.asarray(mapped).flags.writeable
        assert mapped.as_tensor().readonly and not mapped.numpy().flags.writeable
        with pytest.raises(TypeError):
            memoryview(mapped)[0] = 1
        gc.collect()


def test_unmapping_twice_is_unmapping_once() -> None:
    owner, tensor = bracketed()
    mapped = tensor.map("w")
    assert mapped.mapped and mapped.nbytes == 24 and mapped.tensor is tensor
    mapped.unmap()
    mapped.unmap()
    with mapped.tensor.map("r"):
        pass
    del mapped
    assert owner.told() == ["begin w", "end w", "begin r", "end r"]


def test_what_is_unmapped_gives_nothing_any_more() -> None:
    mapped = tm.zeros(4).map()
    mapped.unmap()
    with pytest.raises(BufferError):
        memoryview(mapped)
    with pytest.raises(errors.UseAfterFree):
        _ = mapped.ptr
    with pytest.raises(errors.UseAfterFree):
        mapped.as_tensor()
    with pytest.raises(errors.UseAfterFree), mapped:
        pass


@pytest.mark.parametrize("take", [memoryview, np.asarray, lambda m: m.numpy(), lambda m: np.from_dlpack(m.as_tensor())])
def test_while_an_array_of_it_lives_a_map_cannot_end(take: object) -> None:
    assert callable(take)
    owner, tensor = bracketed()
    mapped = tensor.map("rw")
    array = take(mapped)
    assert mapped.export_count == 1
    with pytest.raises(BufferError):
        mapped.unmap()
    with pytest.raises(BufferError):
        tensor.close()
    array[0] = 9
    assert owner.told() == ["begin rw"]
    del array
    mapped.unmap()
    assert owner.told() == ["end rw"] and tensor.tolist()[0] == 9


def test_a_dropped_map_ends_with_its_last_array() -> None:
    owner, tensor = bracketed()
    array = np.asarray(tensor.map("rw"))
    assert owner.told() == ["begin rw"]
    array[3] = 1
    del array
    assert owner.told() == ["end rw"]


def test_leaving_the_block_with_an_array_alive_raises_and_the_access_ends_with_the_array() -> None:
    owner, tensor = bracketed()
    with pytest.raises(BufferError), tensor.map("rw") as mapped:
        array = np.asarray(mapped)
    assert mapped.mapped and owner.told() == ["begin rw"]
    array[0] = 1
    del array
    assert not mapped.mapped and owner.told() == ["end rw"]


def test_an_error_inside_is_the_one_that_is_heard_and_the_access_ends() -> None:
    owner, tensor = bracketed()
    with pytest.raises(KeyError), tensor.map("w"):
        raise KeyError
    assert owner.told() == ["begin w", "end w"]
    with pytest.raises(KeyError) as caught, tensor.map("w") as mapped:
        array = np.asarray(mapped)
        raise KeyError
    assert owner.told() == ["begin w"]
    del array, caught
    assert owner.told() == ["end w"]


@pytest.mark.parametrize("mode", ["", "x", "wr", "R", None, 3, b"r"])
def test_other_modes_are_refused(mode: str) -> None:
    owner, tensor = bracketed()
    with pytest.raises(errors.InvalidArgument):
        tensor.map(mode)
    assert owner.told() == []


def test_what_may_only_be_read_is_mapped_to_read_alone() -> None:
    owner, tensor = bracketed(readonly=True)
    for mode in ("w", "rw"):
        with pytest.raises(errors.InvalidArgument):
            tensor.map(mode)
    assert np.asarray(tensor).sum() == 0
    assert owner.told() == ["begin r", "end r"]


def test_a_storage_is_mapped_as_bytes() -> None:
    storage = tm.full(2, 1, "uint16").storage
    with storage.map("r") as mapped:
        assert bytes(mapped) == b"\x01\x00\x01\x00"
        assert mapped.ptr == storage.ptr


def test_memory_that_only_exists_while_mapped_has_no_address_otherwise() -> None:
    _, tensor = bracketed()
    assert not tensor.storage.host_accessible and tensor.storage.mappable and tensor.storage.bracketed
    with pytest.raises(errors.NotSupported):
        _ = tensor.ptr
    with pytest.raises(errors.NotSupported):
        _ = tensor.storage.ptr
    assert tensor[4:].offset == 4 and tensor.reshape(2, 12)[1].offset == 12
    with tensor[4:].map() as mapped, tensor.map() as whole:
        assert mapped.ptr == whole.ptr + 4
    with pytest.raises(errors.InvalidArgument):
        tm.Storage(0, 24, owner=object(), space=tm.main, memory="mem", device=(1, 0))


def test_copies_and_values_declare_what_they_do() -> None:
    owner, tensor = bracketed()
    tensor.fill_(3)
    assert owner.told() == ["begin w", "end w"]
    assert tensor.tolist() == [3] * 24 and owner.told() == ["begin r", "end r"]
    assert tensor.clone().tolist() == [3] * 24 and owner.told() == ["begin r", "end r"]
    tensor.copy_(tm.full(24, 5, "uint8"))
    assert tensor[5].item() == 5
    assert owner.told() == ["begin w", "end w", "begin r", "end r"]
    assert tensor.to("pinned").wait().tolist() == [5] * 24
    assert tensor.storage.unplanned_accesses == 0


def test_a_copy_on_a_stream_is_inside_its_brackets() -> None:
    owner, tensor = bracketed()
    with tm.Stream(tm.drivers.host()) as stream:
        tensor.copy_(tm.full(24, 5, "uint8"), stream=stream)
        tensor.wait()
        assert owner.told() == ["begin w", "end w"] and tensor.tolist() == [5] * 24


def test_a_copy_between_parts_of_the_same_memory_is_right() -> None:
    _, tensor = bracketed()
    tensor.copy_(tm.from_numpy(np.arange(24, dtype=np.uint8)))
    tensor[1:].copy_(tensor[:-1])
    assert tensor.tolist() == [0, *range(23)]


def test_arrays_without_a_map_share_one_counted_access() -> None:
    owner, tensor = bracketed()
    first, second, third = memoryview(tensor), np.from_dlpack(tensor), tensor.numpy()
    assert tensor.storage.unplanned_accesses == 1 and owner.told() == ["begin rw"]
    reader = memoryview(tensor.as_readonly())
    assert tensor.storage.unplanned_accesses == 2 and owner.told() == ["begin r"]
    del first, third, reader
    assert owner.told() == ["end r"]
    second[1] = 7
    with pytest.raises(BufferError):
        tensor.close()
    del second
    assert owner.told() == ["end rw"] and tensor.tolist()[1] == 7


def test_an_address_that_was_only_read_keeps_the_access_open_as_long_as_the_tensor() -> None:
    owner, tensor = bracketed()
    part = tensor[4:]
    address, readonly = part.__array_interface__["data"]
    assert not readonly and part.__array_interface__["data"][0] == address
    assert owner.told() == ["begin rw"] and tensor.storage.unplanned_accesses == 1
    del part
    assert owner.told() == ["end rw"]
    _ = tensor.__array_interface__
    tensor.close()
    assert owner.told() == ["begin rw", "end rw", "release"]
    del tensor
    assert owner.told() == []


def test_a_begin_that_refuses_leaves_nothing_open() -> None:
    owner, tensor = bracketed()
    for take in (lambda: tensor.map("r"), lambda: memoryview(tensor), lambda: tensor.__dlpack__(max_version=(1, 0))):
        owner.refuse = errors.MemoryUnavailable("mem", "not now")
        with pytest.raises(errors.MemoryUnavailable):
            take()
        assert owner.told() == [] and tensor.storage.export_count == 0
    tensor.close()
    assert owner.told() == ["release"]


def test_an_end_that_fails_is_told_and_is_not_repeated() -> None:
    owner, tensor = bracketed()
    mapped = tensor.map("r")
    owner.fail = OSError("the cable is out")
    with pytest.raises(OSError, match="cable"):
        mapped.unmap()
    mapped.unmap()
    assert owner.told() == ["begin r", "end r"]
    with unraisable() as heard:
        view = memoryview(tensor)
        owner.fail = OSError("again")
        view.release()
        dropped = tensor.map("r")
        owner.fail = OSError("and again")
        del dropped
    assert [str(error) for error in heard] == ["again", "and again"]
    tensor.close()


@pytest.mark.parametrize("held", [lambda t: t.map("w"), memoryview, lambda t: (t.map("r"), t.map("r"), memoryview(t))])
def test_in_a_cycle_of_garbage_accesses_end_before_the_owner_is_released(held: Callable[[tm.Tensor], object]) -> None:
    owner, tensor = bracketed()
    log = owner.log
    owner.kept = held(tensor)
    del owner, tensor
    assert "release" not in log
    with unraisable() as heard:
        gc.collect()
    assert heard == [] and log[-1] == "release" and log.count("release") == 1
    begun = sorted(call.removeprefix("begin ") for call in log if call.startswith("begin "))
    assert begun == sorted(call.removeprefix("end ") for call in log if call.startswith("end "))


def test_all_that_is_open_is_ended_even_if_one_end_fails() -> None:
    owner, tensor = bracketed()
    _ = tensor.__array_interface__, tensor.as_readonly().__array_interface__
    shown = tensor.as_readonly()
    _ = shown.__array_interface__
    owner.told()
    owner.fail = OSError("not now")
    with pytest.raises(OSError, match="not now"):
        tensor.close()
    assert sorted(owner.told()) == ["end r", "end rw", "release"]


@pytest.mark.parametrize("wrong", [{"address": 1, "nbytes": 2**63 - 1, "id": -1}, {"address": 2**64 - 1, "nbytes": 2}])
def test_a_storage_that_could_not_be_made_does_not_release_the_owner(wrong: dict[str, int]) -> None:
    owner = Bracketed(8)
    with pytest.raises(errors.InvalidArgument):
        tm.Storage(**wrong, owner=owner, space=tm.main, memory="mem", device=(1, 0))  # type: ignore[arg-type]
    gc.collect()
    assert owner.told() == []


def test_an_owner_that_gives_no_address_is_refused() -> None:
    class Nowhere(Bracketed):
        def begin_access(self, mode: str) -> int:
            super().begin_access(mode)
            return 0

    owner = Nowhere(8)
    with pytest.raises(errors.InvalidArgument):
        owner.storage().map("r")
    assert owner.told() == ["begin r", "end r", "release"]


def test_a_closed_storage_is_not_mapped() -> None:
    owner, tensor = bracketed()
    tensor.close()
    with pytest.raises(errors.UseAfterFree):
        tensor.storage.map("r")
    with pytest.raises(errors.UseAfterFree):
        tensor.map("r")
    assert owner.told() == ["release"]


def test_a_map_keeps_the_memory_and_cannot_be_made_by_hand_or_sent_away() -> None:
    mapped = tm.full(3, 7, "uint8").map("r")
    gc.collect()
    assert bytes(mapped) == b"\x07\x07\x07" and "uint8" in repr(mapped)
    with pytest.raises(TypeError):
        type(mapped)()
    with pytest.raises(TypeError):
        pickle.dumps(mapped)


def test_an_owner_with_brackets_is_one_by_its_protocol() -> None:
    assert isinstance(Bracketed(4), MappedOwner) and not isinstance(object(), MappedOwner)
