"""Owns: the rules of the DLPack standard for whoever hands a tensor out.

Must not know: any library.
"""

import ctypes
import gc
from typing import Any

from tensormem.testing.dlpack_rules import NotApplicable, Producer, Rule, expect
from tensormem.testing.dlpack_structs import ExchangeApi, Managed, Versioned, capsule_name, read_capsule

__all__ = ["PRODUCER_RULES"]

_VALUES = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
_READ_ONLY, _IS_COPIED = 1, 2


def _values(struct: Versioned | Managed) -> list[float]:
    tensor = struct.tensor
    first = (tensor.data or 0) + tensor.byte_offset
    rows, columns = tensor.shape[0], tensor.shape[1]
    steps = (tensor.strides[0], tensor.strides[1]) if tensor.strides else (columns, 1)
    at = ctypes.c_float.from_address
    return [at(first + 4 * (i * steps[0] + j * steps[1])).value for i in range(rows) for j in range(columns)]


def _address(struct: Versioned | Managed) -> int:
    return int(struct.tensor.data or 0) + int(struct.tensor.byte_offset)


def _export(producer: Any, **options: Any) -> tuple[Versioned | Managed, Any]:
    return read_capsule(producer.__dlpack__(max_version=(1, 3), **options))


def _flags(struct: Versioned | Managed) -> int:
    expect(isinstance(struct, Versioned), "a tensor from before version 1 has no flags, although max_version is (1, 3)")
    return int(struct.flags) if isinstance(struct, Versioned) else 0


def names_its_device(subject: Producer) -> None:
    device = subject.make().__dlpack_device__()
    expect(tuple(map(int, device)) == (1, 0), f"__dlpack_device__ gave {device!r} for memory of the CPU")


def gives_a_legacy_capsule_unless_told(subject: Producer) -> None:
    capsule = subject.make().__dlpack__()
    expect(capsule_name(capsule) == "dltensor", f"the capsule is called {capsule_name(capsule)!r}")


def gives_a_legacy_capsule_to_old_consumers(subject: Producer) -> None:
    capsule = subject.make().__dlpack__(max_version=(0, 8))
    expect(capsule_name(capsule) == "dltensor", f"the capsule is called {capsule_name(capsule)!r}")


def gives_a_versioned_capsule_when_asked(subject: Producer) -> None:
    for version in ((1, 0), (1, 3), (2, 0)):
        capsule = subject.make().__dlpack__(max_version=version)
        expect(capsule_name(capsule) == "dltensor_versioned", f"{version}: it is called {capsule_name(capsule)!r}")
        struct, give_back = read_capsule(capsule)
        assert isinstance(struct, Versioned)
        expect(struct.major == 1, f"the struct says major version {struct.major}")
        give_back()


def describes_its_elements(subject: Producer) -> None:
    producer = subject.make()
    struct, give_back = _export(producer)
    tensor = struct.tensor
    expect((tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1), "float32 is (2, 32, 1)")
    expect(tensor.ndim == 2 and (tensor.shape[0], tensor.shape[1]) == (2, 3), "the shape is (2, 3)")
    expect((tensor.device_type, tensor.device_id) == (1, 0), "the device in the struct is not (1, 0)")
    expect(_values(struct) == _VALUES, f"the values are {_values(struct)}")
    give_back()


def gives_strides(subject: Producer) -> None:
    producer = subject.make()
    struct, give_back = _export(producer)
    given = bool(struct.tensor.strides)
    give_back()
    expect(given, "strides are NULL, which is not allowed from version 1.2 on")


def keeps_memory_for_the_consumer(subject: Producer) -> None:
    producer = subject.make()
    struct, give_back = _export(producer)
    del producer
    gc.collect()
    subject.make()
    values = _values(struct)
    give_back()
    expect(values == _VALUES, f"after the producer is gone the values are {values}")


def lets_an_unused_capsule_go(subject: Producer) -> None:
    producer = subject.make()
    for options in ({}, {"max_version": (1, 0)}):
        producer.__dlpack__(**options)
    gc.collect()
    struct, give_back = _export(producer)
    expect(_values(struct) == _VALUES, "dropping a capsule changed the values")
    give_back()


def takes_a_stream_of_none(subject: Producer) -> None:
    struct, give_back = _export(subject.make(), stream=None)
    expect(_values(struct) == _VALUES, "the values changed")
    give_back()


def refuses_a_stream_of_another_kind(subject: Producer) -> None:
    try:
        subject.make().__dlpack__(max_version=(1, 3), stream=4711)
    except Exception:
        return
    expect(False, "memory of the CPU took stream 4711")


def copies_when_told(subject: Producer) -> None:
    producer = subject.make()
    plain, give_back_plain = _export(producer, copy=False)
    copied, give_back = _export(producer, copy=True)
    try:
        expect(_address(plain) != _address(copied), "copy=True gave the same memory")
        expect(_values(copied) == _VALUES, "the copy has other values")
        expect(_flags(copied) & _IS_COPIED, "the copy is not flagged IS_COPIED")
        expect(not _flags(plain) & _IS_COPIED, "what is no copy is flagged IS_COPIED")
    finally:
        give_back_plain()
        give_back()


def exports_to_its_own_device(subject: Producer) -> None:
    struct, give_back = _export(subject.make(), dl_device=(1, 0))
    expect(_values(struct) == _VALUES, "the values changed")
    give_back()


def refuses_other_devices_with_buffer_error(subject: Producer) -> None:
    try:
        subject.make().__dlpack__(max_version=(1, 3), dl_device=(8, 0))
    except BufferError:
        return
    except Exception as error:
        expect(False, f"dl_device=(8, 0) raised {type(error).__name__}, not BufferError")
    expect(False, "dl_device=(8, 0) gave a capsule")


def flags_read_only_memory(subject: Producer) -> None:
    if subject.make_readonly is None:
        raise NotApplicable("it has no read-only tensors")
    struct, give_back = _export(subject.make_readonly())
    flagged = isinstance(struct, Versioned) and struct.flags & _READ_ONLY
    give_back()
    expect(flagged, "read-only memory is not flagged READ_ONLY")


def refuses_read_only_memory_as_a_legacy_tensor(subject: Producer) -> None:
    if subject.make_readonly is None:
        raise NotApplicable("it has no read-only tensors")
    try:
        subject.make_readonly().__dlpack__()
    except BufferError:
        return
    except Exception as error:
        expect(False, f"raised {type(error).__name__}, not BufferError")
    expect(False, "read-only memory went out as a tensor that anybody may write")


def offers_the_c_exchange_api(subject: Producer) -> None:
    producer = subject.make()
    offered = getattr(type(producer), "__dlpack_c_exchange_api__", None)
    if offered is None:
        raise NotApplicable("it offers none")
    expect(capsule_name(offered) == "dlpack_exchange_api", f"the capsule is called {capsule_name(offered)!r}")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    table = ExchangeApi.from_address(get(offered, b"dlpack_exchange_api"))
    expect(table.major == 1, f"the table says major version {table.major}")
    expect(all((table.allocate, table.from_object, table.to_object, table.work_stream)), "a function is NULL")
    out = ctypes.c_void_p()
    call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))(table.from_object)
    expect(call(producer, ctypes.byref(out)) == 0 and out.value, "it did not export")
    struct = Versioned.from_address(out.value or 0)
    expect(_values(struct) == _VALUES, f"the values are {_values(struct)}")
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(struct.deleter)(out.value)


PRODUCER_RULES = [
    Rule("names its device", names_its_device),
    Rule("gives a legacy capsule unless told", gives_a_legacy_capsule_unless_told),
    Rule("gives a legacy capsule to consumers from before version 1", gives_a_legacy_capsule_to_old_consumers),
    Rule("gives a versioned capsule when asked", gives_a_versioned_capsule_when_asked),
    Rule("describes type, shape, device and values", describes_its_elements),
    Rule("always gives strides", gives_strides),
    Rule("keeps the memory until the deleter is called", keeps_memory_for_the_consumer),
    Rule("lets a capsule that nobody used go", lets_an_unused_capsule_go),
    Rule("takes stream=None", takes_a_stream_of_none),
    Rule("refuses a stream where there are none", refuses_a_stream_of_another_kind),
    Rule("copies when told, and flags the copy", copies_when_told),
    Rule("exports to its own device by name", exports_to_its_own_device),
    Rule("refuses devices it cannot reach with BufferError", refuses_other_devices_with_buffer_error),
    Rule("flags read-only memory", flags_read_only_memory),
    Rule("refuses read-only memory as a legacy tensor", refuses_read_only_memory_as_a_legacy_tensor),
    Rule("exports by its C exchange API", offers_the_c_exchange_api),
]
"""Every rule for producers."""
