"""A tensor as a header and bytes: what is kept on the way, and what is refused on arrival."""

import contextlib
import json
import pickle
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensormem as tm
from support.python_processes import check_python
from tensormem import errors
from tensormem.tensor.wire import FORMAT_VERSION, pack, parse_header, unpack
from tensormem.testing import simulated_gpu


def sent(tensor: tm.Tensor, *, locked: bool = False) -> tm.Tensor:
    """What arrives, out of band."""
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(tensor, protocol=5, buffer_callback=buffers.append)
    assert len(stream) < 1000
    return _tensor(pickle.loads(stream, buffers=[bytes(each) if locked else bytearray(each) for each in buffers]))


def _tensor(value: Any) -> tm.Tensor:
    assert isinstance(value, tm.Tensor)
    return value


def numbered(*shape: int) -> tm.Tensor:
    import numpy as np

    return tm.from_numpy(np.arange(int(np.prod(shape)), dtype="int32").reshape(shape).copy())


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_keeps_values_and_what_may_be_written(protocol: int) -> None:
    for tensor in (numbered(2, 3), numbered(2, 3).as_readonly()):
        arrived = _tensor(pickle.loads(pickle.dumps(tensor, protocol)))
        assert arrived.tolist() == tensor.tolist()
        assert (arrived.shape, arrived.dtype, arrived.readonly) == (tensor.shape, tensor.dtype, tensor.readonly)


def test_a_pickle_of_many_has_one_header_and_no_more_bytes_than_arrays_have() -> None:
    import numpy as np

    tensors, arrays = [tm.zeros(1024) for _ in range(100)], [np.zeros(1024, "float32") for _ in range(100)]
    stream = pickle.dumps(tensors, 5)
    assert len(stream) <= len(pickle.dumps(arrays, 5)) and stream.count(b"readonly") == 1
    assert len(pickle.dumps(tensors[0], 5)) < 1.02 * len(pickle.dumps(arrays[0], 5))


def test_the_bytes_are_the_tensors_own_memory() -> None:
    tensor = numbered(4, 5)
    header, data = pack(tensor)
    assert data.aliases(tensor) and data.ptr == tensor.ptr and data.nbytes == tensor.nbytes
    assert len(header) < 300


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (2, 0, 1)])
def test_an_order_of_dimensions_without_gaps_is_kept_and_nothing_is_copied(order: tuple[int, int, int]) -> None:
    tensor = numbered(2, 3, 4).permute(*order)
    assert pack(tensor)[1].aliases(tensor)
    arrived = sent(tensor)
    assert arrived.strides == tensor.strides
    assert arrived.tolist() == tensor.tolist()


@pytest.mark.parametrize("index", [slice(None, None, 2), slice(None, None, -1), slice(1, 3)])
def test_gaps_are_not_sent(index: slice) -> None:
    tensor = numbered(6, 4)[:, index]
    _header, data = pack(tensor)
    assert data.nbytes == tensor.nbytes
    arrived = sent(tensor)
    assert arrived.is_contiguous
    assert arrived.tolist() == tensor.tolist()


def test_a_repeated_row_is_sent_as_often_as_it_is_seen() -> None:
    tensor = numbered(3).broadcast_to((2, 3))
    assert sent(tensor).tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)])
def test_edge_shapes_arrive(shape: tuple[int, ...]) -> None:
    arrived = sent(tm.zeros(shape, "float64"))
    assert (arrived.shape, arrived.tolist()) == (shape, tm.zeros(shape, "float64").tolist())


def test_bytes_that_may_only_be_read_give_a_tensor_that_may_only_be_read() -> None:
    assert sent(numbered(2), locked=True).readonly
    assert sent(numbered(2).as_readonly()).readonly


def test_a_tensor_of_a_gpu_goes_back_to_the_same_gpu() -> None:
    with simulated_gpu(devices=2, memory="64MiB"):
        tensor = numbered(512, 1024).to("gpu:1")
        arrived = sent(tensor)
        assert arrived.space is tm.gpu(1)
        assert "pinned" in arrived.transfer_report.why
        assert arrived.to("main").tolist() == tensor.to("main").tolist()
        assert sent(tensor.as_readonly()).readonly
        assert sent(tm.zeros((0, 3), space="gpu:0")).space is tm.gpu(0)
        for space in ("pinned", "managed"):
            assert str(sent(numbered(3).to(space)).space) == space


def header_from_a_gpu() -> bytes:
    with simulated_gpu(memory="64MiB"):
        return pack(tm.zeros(4, "uint8").to("gpu:0"))[0]


def test_a_space_that_is_not_here_is_an_error_that_names_it_and_both_hosts() -> None:
    header = header_from_a_gpu().replace(b'"host":"', b'"host":"far-')
    with pytest.raises(errors.MemoryUnavailable, match=r"gpu:0 of host far-.*TENSORMEM_MISSING_SPACE=main") as caught:
        unpack(header, bytearray(4))
    assert caught.value.kind == "gpu:0"


def test_a_space_that_is_not_here_can_become_main_memory() -> None:
    check_python(
        f"""
        import os
        os.environ["TENSORMEM_MISSING_SPACE"] = "main"
        from tensormem.tensor.wire import unpack
        arrived = unpack({header_from_a_gpu()!r}, bytearray(b"1234"))
        assert str(arrived.space) == "main" and arrived.tolist() == [49, 50, 51, 52]
        assert "it came from gpu:0" in arrived.memory_reason, arrived.memory_reason
        """
    )


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, 65535])
def test_another_format_is_refused_and_both_versions_are_named(version: int) -> None:
    header = pack(numbered(2))[0]
    with pytest.raises(errors.VersionSkew, match=f"{version}.*{FORMAT_VERSION}") as caught:
        unpack(header[:2] + struct.pack("<H", version) + header[4:], bytearray(8))
    assert (caught.value.theirs, caught.value.ours) == (version, FORMAT_VERSION)


def test_fewer_bytes_than_the_header_says_are_refused() -> None:
    header, data = pack(numbered(4))
    with pytest.raises(errors.TensormemError):
        unpack(header, bytes(data)[:-1])


def changed(**facts: object) -> bytes:
    header = pack(numbered(2, 2))[0]
    return header[:4] + json.dumps({**json.loads(header[4:]), **facts}).encode()


@pytest.mark.parametrize(
    "facts",
    [
        {"shape": [-1, 2]},
        {"shape": [2.0, 2]},
        {"shape": "22"},
        {"shape": None},
        {"strides": [-2, 1]},
        {"strides": ["2", 1]},
        {"dtype": [2, 32]},
        {"dtype": [77, 1, 1]},
        {"readonly": 1},
        {"host": 5},
        {"space": "moon:0"},
        {"space": 7},
    ],
    ids=str,
)
def test_facts_that_cannot_be_right_are_refused(facts: dict[str, object]) -> None:
    with pytest.raises(errors.MalformedMessage):
        parse_header(changed(**facts))


def test_strides_that_leave_the_bytes_are_refused() -> None:
    for facts in ({"strides": [2**61, 1]}, {"strides": [100, 1]}, {"shape": [2**40, 2**40]}, {"strides": [1]}):
        with pytest.raises(errors.TensormemError):
            unpack(changed(**facts), bytearray(16))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_get_past_the_parser_but_as_facts_or_a_refusal(noise: bytes) -> None:
    good = pack(numbered(2, 2))[0]
    for header in (
        noise,
        good[:4] + noise,
        good[: len(noise)],
        bytes(a ^ b for a, b in zip(good, noise, strict=False)),
    ):
        with contextlib.suppress(errors.TensormemError):
            unpack(header, bytearray(16))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["dtype", "shape", "strides", "readonly", "space", "host"]), json_values))
def test_no_description_gets_past_the_parser_but_as_facts_or_a_refusal(facts: dict[str, object]) -> None:
    with contextlib.suppress(errors.TensormemError):
        unpack(changed(**facts), bytearray(16))
