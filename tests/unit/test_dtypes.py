"""dtypes.py: DLPack's element types, their names both ways, and the dtypes of others, recognised but not imported."""

import copy
import doctest
import pickle
import struct
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensormem import dtypes
from tensormem.dtypes import DType, DTypeCode, dtype
from tensormem.errors import InvalidDType, InvalidSize

# What the DLPack 1.3 specification says: name, code, bits.
SPECIFIED = [
    *((f"int{bits}", 0, bits) for bits in (1, 2, 4, 8, 16, 32, 64)),
    *((f"uint{bits}", 1, bits) for bits in (1, 2, 4, 8, 16, 32, 64)),
    *((f"float{bits}", 2, bits) for bits in (16, 32, 64)),
    ("opaque_handle64", 3, 64),
    ("bfloat16", 4, 16),
    *((f"complex{bits}", 5, bits) for bits in (32, 64, 128)),
    ("bool", 6, 8),
    ("float8_e3m4", 7, 8),
    ("float8_e4m3", 8, 8),
    ("float8_e4m3b11fnuz", 9, 8),
    ("float8_e4m3fn", 10, 8),
    ("float8_e4m3fnuz", 11, 8),
    ("float8_e5m2", 12, 8),
    ("float8_e5m2fnuz", 13, 8),
    ("float8_e8m0fnu", 14, 8),
    ("float6_e2m3fn", 15, 6),
    ("float6_e3m2fn", 16, 6),
    ("float4_e2m1fn", 17, 4),
]
NAMES = [name for name, _, _ in SPECIFIED]
LANES = st.integers(1, 2**16 - 1)
NUMPY_NAMES = [name for name in NAMES if hasattr(np, name)]


class MlDtype:
    """What an ml_dtypes dtype says of itself: NumPy takes it for raw bytes, only the name tells."""

    kind, byteorder, names, subdtype = "V", "=", None, None

    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize


class TorchDtype:
    """A dtype of torch is told by its module and by its text."""

    __module__ = "torch"

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@pytest.mark.parametrize(("name", "code", "bits"), SPECIFIED)
def test_names_and_numbers_are_those_of_the_specification(name: str, code: int, bits: int) -> None:
    named = dtype(name)
    assert (named.code, named.bits, named.lanes, named.name, str(named)) == (code, bits, 1, name, name)
    assert DType(code, bits) is named


def test_every_code_of_the_specification_has_a_type() -> None:
    assert {code for _, code, _ in SPECIFIED} == set(DTypeCode) == set(range(18))


@given(st.sampled_from(SPECIFIED), LANES)
def test_names_round_trip_with_lanes(specified: tuple[str, int, int], lanes: int) -> None:
    name, code, bits = specified
    made = DType(code, bits, lanes)
    assert dtype(made.name) is made
    assert made.name == (name if lanes == 1 else f"{name}_x{lanes}")
    assert (made.code, made.bits, made.lanes) == (code, bits, lanes)


@given(st.sampled_from(SPECIFIED), LANES)
def test_one_object_per_type_survives_pickle_copy_and_repr(specified: tuple[str, int, int], lanes: int) -> None:
    made = DType(specified[1], specified[2], lanes)
    assert pickle.loads(pickle.dumps(made)) is made
    assert copy.copy(made) is made
    assert copy.deepcopy([made])[0] is made
    assert eval(repr(made), {"tm": SimpleNamespace(dtype=dtype)}) is made
    assert {made: 1}[DType(specified[1], specified[2], lanes)] == 1


def test_threads_that_race_for_a_new_type_get_one_object() -> None:
    barrier, made = threading.Barrier(4), []

    def race() -> None:
        for lanes in range(40_000, 40_200):
            barrier.wait()
            made.append((lanes, id(DType(2, 32, lanes))))

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 800
    assert len(set(made)) == 200


@pytest.mark.parametrize("attribute", ["code", "bits", "lanes", "name", "new"])
def test_a_dtype_cannot_be_changed(attribute: str) -> None:
    with pytest.raises(AttributeError, match=attribute):
        setattr(dtype("float32"), attribute, 64)
    with pytest.raises(AttributeError, match=attribute):
        delattr(dtype("float32"), attribute)
    assert (dtype("float32").bits, dtype("float32").name) == (32, "float32")


@pytest.mark.parametrize("numbers", [(0, 9, 1), (2, 8, 1), (2, 128, 1), (4, 32, 1), (6, 1, 1), (17, 8, 1), (16, 8, 1)])
def test_a_width_that_the_family_does_not_have_is_refused_with_those_it_has(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidDType, match=f"{DTypeCode(numbers[0]).name} has .* bits") as caught:
        DType(*numbers)
    assert caught.value.value == numbers


@pytest.mark.parametrize("numbers", [(18, 8, 1), (-1, 8, 1), (255, 8, 1)])
def test_a_code_that_dlpack_does_not_have_is_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidDType, match=f"no code {numbers[0]}"):
        DType(*numbers)


@pytest.mark.parametrize("lanes", [0, -1, 2**16])
def test_lanes_that_do_not_fit_are_refused(lanes: int) -> None:
    with pytest.raises(InvalidDType, match="lanes are 1 to 65535"):
        DType(2, 32, lanes)


@pytest.mark.parametrize("numbers", [(2.0, 32, 1), ("2", 32, 1), (2, None, 1), (2, 32, [1])])
def test_numbers_of_a_dtype_are_whole_numbers(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidDType, match="whole numbers"):
        DType(*numbers)


@pytest.mark.parametrize(
    ("name", "itemsize", "itemsize_bits", "subbyte"),
    [
        ("float64", 8, 64, False),
        ("complex128", 16, 128, False),
        ("bool", 1, 8, False),
        ("int4", 1, 4, True),
        ("float6_e2m3fn", 1, 6, True),
        ("float6_e2m3fn_x4", 3, 24, False),
        ("float4_e2m1fn_x2", 1, 8, False),
        ("float4_e2m1fn_x3", 2, 12, True),
        ("float32_x4", 16, 128, False),
    ],
)
def test_sizes_of_one_element(name: str, itemsize: int, itemsize_bits: int, subbyte: bool) -> None:
    named = dtype(name)
    assert (named.itemsize, named.itemsize_bits, named.is_subbyte) == (itemsize, itemsize_bits, subbyte)


@given(st.sampled_from(NAMES), st.integers(0, 2**40))
def test_packed_elements_take_the_bytes_that_their_bits_need(name: str, count: int) -> None:
    nbytes, bits = dtype(name).nbytes_for(count), count * dtype(name).itemsize_bits
    assert 8 * (nbytes - 1) < bits <= 8 * nbytes


@pytest.mark.parametrize("count", [-1, -(2**70), 2**63, 2**61])
def test_a_count_that_is_no_size_is_refused(count: int) -> None:
    with pytest.raises(InvalidSize, match="elements of float32"):
        dtype("float32").nbytes_for(count)


@pytest.mark.parametrize(
    ("given_type", "name"), [(bool, "bool"), (int, "int64"), (float, "float64"), (complex, "complex128")]
)
def test_python_types_are_recognised(given_type: type, name: str) -> None:
    assert dtype(given_type) is dtype(name)


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_numpy_dtypes_and_scalar_types_are_recognised(name: str) -> None:
    assert dtype(np.dtype(name)) is dtype(name)
    assert dtype(getattr(np, name)) is dtype(name)


def test_numpy_gives_enough_types_to_mean_something() -> None:
    assert len(NUMPY_NAMES) == 14


@pytest.mark.parametrize("alias", [np.intc, np.longlong, np.ulonglong, np.double, np.single, np.half, np.uintp])
def test_other_names_of_numpy_types_are_recognised_by_width(alias: type[np.generic]) -> None:
    assert dtype(alias).itemsize == np.dtype(alias).itemsize


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_typestr_and_buffer_format_are_those_of_numpy(name: str) -> None:
    array = np.zeros(2, name)
    named = dtype(name)
    assert named.typestr == array.dtype.str
    assert named.buffer_format is not None
    assert np.dtype(named.typestr) == array.dtype
    assert dtype(array.data.format) is named
    assert dtype(array.__array_interface__["typestr"]) is named
    assert dtype(named.buffer_format) is named


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e5m2", "int4", "float32_x2", "complex32", "opaque_handle64", "float4_e2m1fn"]
)
def test_types_without_a_typestr_or_format_say_none(name: str) -> None:
    assert dtype(name).typestr is None
    assert dtype(name).buffer_format is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<f4", "float32"),
        ("=f8", "float64"),
        ("f2", "float16"),
        ("|b1", "bool"),
        ("|u1", "uint8"),
        (">u1", "uint8"),
        ("i8", "int64"),
        ("<c16", "complex128"),
        ("?", "bool"),
        ("b", "int8"),
        ("B", "uint8"),
        ("h", "int16"),
        ("<H", "uint16"),
        ("@i", "int32"),
        ("I", "uint32"),
        ("q", "int64"),
        ("Q", "uint64"),
        ("<l", "int32"),
        ("<L", "uint32"),
        ("e", "float16"),
        ("=d", "float64"),
        ("Zf", "complex64"),
        ("<Zd", "complex128"),
    ],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="the texts are little-endian")
def test_typestrs_and_buffer_formats_are_recognised(text: str, name: str) -> None:
    assert dtype(text) is dtype(name)


@pytest.mark.parametrize("text", ["l", "L", "n", "N", "@l"])
def test_formats_that_depend_on_the_machine_have_its_width(text: str) -> None:
    width = struct.calcsize(text)
    assert dtype(text).itemsize == width
    assert dtype(text).code == (DTypeCode.INT if text.islower() else DTypeCode.UINT)


@pytest.mark.parametrize("text", ["float32", "bool", "bfloat16", "float8_e4m3fn", "float4_e2m1fn_x2", "uint1"])
def test_torch_dtypes_are_recognised(text: str) -> None:
    assert dtype(TorchDtype(f"torch.{text}")) is dtype(text)
    assert dtype(f"torch.{text}") is dtype(text)


@pytest.mark.parametrize("text", ["torch.qint8", "torch.bits8", "<object object>", "float32x"])
def test_torch_dtypes_that_dlpack_does_not_have_are_refused(text: str) -> None:
    with pytest.raises(InvalidDType):
        dtype(TorchDtype(text))


@pytest.mark.parametrize(
    ("name", "itemsize"), [("bfloat16", 2), ("float8_e4m3b11fnuz", 1), ("int4", 1), ("float6_e2m3fn", 1)]
)
def test_ml_dtypes_are_recognised_by_their_name(name: str, itemsize: int) -> None:
    described = MlDtype(name=name, itemsize=itemsize)
    assert dtype(described) is dtype(name)
    # JAX's scalar types are classes that carry the dtype.
    assert dtype(type(name, (), {"dtype": described})) is dtype(name)


def test_a_name_whose_size_does_not_agree_is_refused() -> None:
    with pytest.raises(InvalidDType):
        dtype(MlDtype(name="bfloat16", itemsize=4))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (np.dtype(">f4" if sys.byteorder == "little" else "<f4"), "foreign order"),
        (np.dtype("O"), "Python objects"),
        (np.dtype("M8[ns]"), "view them as int64"),
        (np.dtype("m8[s]"), "view them as int64"),
        (np.dtype("S4"), "text has no element type"),
        (np.dtype("U4"), "text has no element type"),
        (np.dtypes.StringDType(), "text has no element type"),
        (np.dtype("V2"), "raw bytes"),
        (np.dtype([("x", "f4"), ("y", "f4")]), "several parts"),
        (np.dtype(("f4", (2, 2))), "several parts"),
        (np.dtype(np.longdouble), "DLPack has no such type"),
        (np.clongdouble, "DLPack has no such type"),
        (np.object_, "Python objects"),
        (np.floating, "does not name one"),
        (np.generic, "does not name one"),
    ],
)
def test_numpy_dtypes_that_are_no_element_type_are_refused_with_the_reason(bad: object, why: str) -> None:
    with pytest.raises(InvalidDType) as caught:
        dtype(bad)
    assert why in caught.value.what


def test_abstract_types_are_refused_also_where_numpy_answers_with_a_concrete_one() -> None:
    # Until 2.4, NumPy took numpy.floating for float64 and warned.
    with pytest.raises(InvalidDType, match="does not name one"):
        dtypes._describe(np.floating, lambda kind: np.dtype("float64"))


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "float33",
        "Float32",
        "FLOAT32",
        " float32",
        "float32 ",
        "float",
        "float32_x0",
        "float32_x1",
        "float32_x02",
        "float32_x65536",
        "float32_x999999",
        "float32_x",
        "float32_x-2",
        "float32_x2_x2",
        "float33_x2",
        "_x2",
        "torch.",
        ">f4",
        "!d",
        ">Zd",
        "<V2",
        "f16",
        "O",
        "<n",
        "|d",
        "@f4",
        "!f4",
        "ff",
        "4f",
        "P",
        "c",
        "<",
        "float32\n",
        "b1b1",
        "\u0661",
    ],
)
def test_texts_that_name_no_element_type_are_refused(bad: str) -> None:
    with pytest.raises(InvalidDType) as caught:
        dtype(bad)
    assert caught.value.value == bad


@pytest.mark.parametrize(
    "bad", [None, 1, 2.5, True, [], {}, b"float32", object(), str, bytes, object, list, np.zeros(2)]
)
def test_values_that_name_no_element_type_are_refused(bad: object) -> None:
    with pytest.raises(InvalidDType) as caught:
        dtype(bad)
    assert caught.value.value is bad


@given(st.text(max_size=12))
def test_any_text_is_an_element_type_or_refused(text: str) -> None:
    try:
        named = dtype(text)
    except InvalidDType:
        return
    assert isinstance(named, DType)


def test_a_dtype_is_its_own_dtype() -> None:
    assert dtype(dtype("float32")) is dtype("float32")


def test_nothing_slow_is_imported_for_any_of_the_low_modules() -> None:
    # The package is put in place by hand, so that only these modules and what they import are loaded.
    program = """
import sys, types
package = sys.modules["tensormem"] = types.ModuleType("tensormem")
package.__path__ = [sys.argv[1]]
import tensormem.errors, tensormem.units, tensormem.dtypes, tensormem.config, tensormem.spaces
tensormem.dtypes.dtype("float32")
slow = {"typing", "re", "inspect", "dataclasses", "difflib", "importlib.metadata", "numpy", "ctypes"}
print(sorted(slow & sys.modules.keys()))
"""
    folder = str(Path(dtypes.__file__).parent)
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, folder], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"


def test_examples_in_the_docstrings_run() -> None:
    ran = doctest.testmod(dtypes)
    assert ran.attempted >= 4
    assert ran.failed == 0
