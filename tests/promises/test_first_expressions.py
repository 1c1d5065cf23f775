"""What people type first, from the quick starts of NumPy, PyTorch and RMM: each works as there, or is in the list of
docs/how-to/coming-from-numpy-and-torch.md with its reason.

Where the library is here, the same expression is evaluated with it, and the two answers are compared.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensormem as tm
from tensormem import rmm

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "coming-from-numpy-and-torch.md"

# `xp` is NumPy and then tensormem.
NUMPY = """
xp.asarray([1, 2, 3])
xp.asarray([[1, 2], [3, 4]]).shape
xp.asarray([1.5, 2.5]).dtype
xp.asarray([1, 2, 3]).dtype
xp.asarray([True, False]).dtype
xp.asarray([1j]).dtype
xp.asarray(5).shape
xp.asarray([[1, 2], [3, 4]]).ndim
xp.asarray([[1, 2], [3, 4]]).size
xp.asarray([[1, 2], [3, 4]]).nbytes
xp.asarray([[1, 2], [3, 4]]).itemsize
xp.zeros((2, 3), "float32")
xp.zeros(3, dtype="int64")
xp.ones((2, 3), "int16")
xp.ones(2, dtype=np.float64)
xp.empty((2, 3)).shape
xp.full((2, 2), 7, "int32")
xp.arange(6)
xp.arange(2, 9, 2)
xp.arange(0, 1, 0.25)
xp.arange(6).reshape(2, 3)
xp.arange(6).reshape((3, 2))
xp.arange(6).reshape(-1, 2).shape
xp.arange(6).reshape(2, 3).T
xp.arange(6).reshape(2, 3).T.shape
xp.arange(6).reshape(2, 3)[1]
xp.arange(6).reshape(2, 3)[1, 2]
xp.arange(6).reshape(2, 3)[:, 1]
xp.arange(6).reshape(2, 3)[..., 0]
xp.arange(6).reshape(2, 3)[None].shape
xp.arange(6).reshape(2, 3)[-1, -1]
xp.arange(10)[2:5]
xp.arange(10)[:6:2]
xp.arange(10)[::-1]
xp.arange(10)[-3:]
xp.arange(10)[5:100]
xp.arange(10)[20:]
len(xp.arange(10))
[int(each) for each in xp.arange(3)]
[row.shape for row in xp.zeros((2, 3))]
int(xp.arange(10)[3])
float(xp.asarray(2.5))
bool(xp.asarray(1))
complex(xp.asarray(2.5))
[10, 20, 30][xp.asarray(1)]
xp.arange(3).tolist()
xp.asarray(2.5).item()
xp.zeros_like(xp.arange(3))
xp.ones_like(xp.arange(3))
xp.full_like(xp.arange(3), 9)
xp.empty_like(xp.arange(3)).shape
xp.asarray(xp.arange(3)).tolist()
xp.asarray(np.arange(3)).tolist()
xp.from_dlpack(np.arange(3))
xp.zeros(2, "float32").dtype == "float32"
xp.zeros(2, "float32").dtype == np.float32
xp.zeros(2, "float32").dtype == "float64"
xp.zeros(2, "f4").dtype.itemsize
xp.zeros(2, float).dtype
np.asarray(xp.arange(3)).sum()
np.add(xp.arange(3), 1)
bytes(memoryview(xp.arange(2)))
xp.array([6, 7, 8])
xp.array([(1.5, 2, 3), (4, 5, 6)])
xp.array([[1, 2], [3, 4]], dtype=np.complex128)
xp.arange(15).reshape(3, 5).dtype.name
xp.zeros(3, dtype=xp.float32).dtype
xp.zeros(3, dtype=xp.int64).dtype
xp.ones((2, 3, 4), dtype=np.int16)
xp.arange(10, 30, 5)
xp.arange(0, 2, 0.3)
xp.arange(start=1, stop=4)
xp.arange(1, 4, dtype="float32")
xp.arange(20).reshape(5, 4)[0:5, 1]
xp.arange(20).reshape(5, 4)[1:3, :]
xp.arange(24).reshape(2, 3, 4)[1, ...]
xp.arange(24).reshape(2, 3, 4)[..., 2]
[int(each) for row in xp.arange(4).reshape(2, 2) for each in row]
xp.arange(12).reshape((2, -1, 3)).shape
np.vstack((xp.arange(2), xp.arange(2)))
np.concatenate([xp.arange(2), xp.arange(2)])
xp.arange(2)[:, np.newaxis].shape
xp.zeros((1, 3, 1)).squeeze().shape
xp.zeros([2, 3]).shape
xp.zeros(()).shape
xp.zeros(3, dtype=bool).dtype
xp.empty(shape=(2,)).shape
xp.asarray(range(3))
xp.asarray(np.float32(2.5)).dtype
xp.asarray(np.array([1, 2])[::-1])
xp.ones_like(xp.zeros((2, 2)), dtype="int8").dtype
"%d" % xp.asarray(3)
xp.arange(6).reshape(2, 3).transpose(1, 0) if xp is np else xp.arange(6).reshape(2, 3).permute(1, 0)
"""

# `xp` is torch and then tensormem.
TORCH = """
xp.tensor([1, 2, 3])
xp.tensor([[1, 2], [3, 4]]).shape
xp.tensor([1, 2]).dtype
xp.tensor(5).item()
xp.zeros((2, 3))
xp.zeros((2, 3)).dtype
xp.ones((2, 2))
xp.empty((2, 2)).shape
xp.full((2, 2), 7.0)
xp.arange(5)
xp.arange(6).reshape(2, 3)
xp.arange(6).reshape(2, 3).permute(1, 0)
xp.arange(6).reshape(2, 3).transpose(0, 1)
xp.arange(6).unsqueeze(0).shape
xp.zeros((1, 3)).squeeze(0).shape
xp.zeros((2, 3)).to("cpu").shape
xp.zeros((2, 3)).is_contiguous if xp is tm else xp.zeros((2, 3)).is_contiguous()
xp.arange(6).reshape(2, 3).T.contiguous()
xp.arange(3).clone()
xp.zeros(3).fill_(2.0)
xp.zeros(3).numpy()
xp.zeros(3).copy_(xp.ones(3)) is not None
xp.from_numpy(np.arange(3))
xp.zeros((2, 3), dtype=torch.float16).dtype
xp.zeros((2, 3), dtype=torch.bfloat16).dtype
xp.zeros_like(xp.arange(3))
xp.ones_like(xp.arange(3))
torch.from_dlpack(xp.arange(3)) + 1
xp.arange(10)[3].item()
xp.arange(10)[2:4].tolist()
int(xp.tensor([7]))
bool(xp.tensor([0]))
xp.zeros(3).dtype == torch.float32
len(xp.zeros((2, 3)))
xp.tensor([[1.0, -1.0], [1.0, -1.0]])
xp.tensor([[1, 2, 3], [4, 5, 6]])[1][2]
xp.tensor([1, 2], dtype=xp.int32).dtype
xp.zeros([2, 4], dtype=xp.int32)
xp.zeros((2, 3)).ndim
xp.zeros((2, 3)).nbytes
xp.ones(3).to("cpu", copy=True)
xp.ones(3).to(torch.device("cpu"))
xp.zeros((2, 3, 4)).permute(2, 0, 1).shape
xp.zeros((2, 3, 4)).permute((2, 0, 1)).shape
xp.zeros((2, 3)).unsqueeze(-1).shape
xp.arange(1, 2.5, 0.5)
xp.bfloat16
xp.float32.itemsize
xp.zeros_like(xp.zeros(3), dtype=torch.int8).dtype
xp.full_like(xp.zeros(3), 5)
"""

# `xp` is tensormem.rmm; what RMM gives stands beside.
RMM: dict[str, object] = {
    "xp.DeviceBuffer(size=100).size": 100,
    "xp.DeviceBuffer().ptr": 0,
    "xp.DeviceBuffer.to_device(b'abc').tobytes()": b"abc",
    "xp.DeviceBuffer.to_device(b'abc').copy_to_host().tolist()": [97, 98, 99],
    "len(xp.DeviceBuffer(size=5).__cuda_array_interface__)": 5,
    "xp.is_initialized()": True,
    "xp.reinitialize(pool_allocator=True, initial_pool_size='1MiB', maximum_pool_size='8MiB')": None,
    "xp.mr.PoolMemoryResource(xp.mr.SystemMemoryResource(), 2**20, 2**21).pool_size()": 2**20,
    "xp.mr.set_current_device_resource(xp.mr.SystemMemoryResource())": None,
    "type(xp.mr.PrefetchResourceAdaptor(xp.mr.SystemMemoryResource()).get_upstream()).__name__": "SystemMemoryResource",
    "xp.mr.StatisticsResourceAdaptor(xp.mr.SystemMemoryResource()).allocation_counts.peak_bytes": 0,
    "xp.mr.LimitingResourceAdaptor(xp.mr.SystemMemoryResource(), 100).get_allocation_limit()": 100,
    "xp.mr.TrackingResourceAdaptor(xp.mr.SystemMemoryResource()).get_allocated_bytes()": 0,
    "xp.mr.available_device_memory()[0] > 0": True,
    "xp.get_log_filenames()": {0: None},
    "xp.statistics.get_statistics()": None,
    "xp.pylibrmm.stream.DEFAULT_STREAM.is_default()": True,
    "xp.pylibrmm.stream.Stream().synchronize()": None,
}

# What is not as there; each stands in the page with its reason.
NOT_HERE = """
tm.zeros(2, 3)
tm.arange(3) + 1
tm.arange(3).sum()
tm.arange(3) == tm.arange(3)
tm.arange(3)[tm.asarray([0, 1])]
tm.arange(3)[0] = 5
tm.arange(3).astype("float32")
tm.asarray(np.arange(3), dtype="float32")
tm.random
tm.zeros(3, device="cpu")
tm.zeros(3).requires_grad
tm.empty("1M")
tm.linspace(0, 2, 9)
tm.arange(3).copy()
tm.arange(6).reshape(2, 3).ravel()
tm.arange(6).view(2, 3)
tm.arange(3).tobytes()
tm.arange(3).flags
tm.arange(3).item(1)
tm.arange(6).reshape(2, 3).transpose()
tm.zeros((2, 3), order="F")
tm.zeros_like([1, 2])
tm.full((2,), fill_value=7)
sum(tm.arange(4))
tm.zeros(3).to(torch.float64)
tm.zeros(3).to("cpu", non_blocking=True)
tm.zeros((2, 3)).size()
tm.zeros((2, 3)).stride()
tm.zeros(3).numel()
tm.zeros(3).dim()
tm.zeros(3).data_ptr()
tm.zeros(3).element_size()
tm.zeros(3).is_contiguous()
tm.zeros(3).device
tm.zeros(3).cpu()
tm.zeros(3).pin_memory()
tm.zeros(3).share_memory_()
tm.zeros(3).zero_()
tm.zeros(3).detach()
tm.zeros((1, 3)).expand(2, 3)
tm.cat
tm.save
tm.frombuffer
tm.device
"""


def lines(text: str) -> list[str]:
    return [line for line in text.strip().splitlines() if line]


def plain(value: Any) -> Any:
    """An answer without whose it is."""
    if isinstance(value, tuple | list) and not isinstance(value, str):
        return [plain(each) for each in value]
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        return value.tolist()
    if isinstance(value, np.dtype | torch.dtype | tm.dtypes.DType):
        return str(value).removeprefix("torch.")
    return value


@pytest.mark.parametrize("expression", lines(NUMPY))
def test_an_expression_of_numpy_gives_the_same(expression: str) -> None:
    names: dict[str, Any] = {"np": np}
    assert plain(eval(expression, {**names, "xp": tm})) == plain(eval(expression, {**names, "xp": np}))


@pytest.mark.parametrize("expression", lines(TORCH))
def test_an_expression_of_pytorch_gives_the_same(expression: str) -> None:
    names: dict[str, Any] = {"np": np, "torch": torch, "tm": tm}
    assert plain(eval(expression, {**names, "xp": tm})) == plain(eval(expression, {**names, "xp": torch}))


@pytest.mark.parametrize("expression", RMM)
def test_an_expression_of_rmm_gives_the_same(expression: str) -> None:
    before = tm.mr.get_per_device_resource(0)
    rmm.reinitialize()
    try:
        assert plain(eval(expression, {"xp": rmm})) == RMM[expression]
    finally:
        rmm.reinitialize()
        tm.mr.set_per_device_resource(0, before)


@pytest.mark.parametrize("statement", lines(NOT_HERE))
def test_what_is_not_here_is_in_the_list_with_its_reason(statement: str) -> None:
    assert f"| `{statement}` |" in PAGE.read_text()
    if "==" in statement:
        assert eval(statement, {"tm": tm}) is False  # of two tensors: whether they are the same object
        return
    with pytest.raises((TypeError, ValueError, AttributeError, IndexError)):
        exec(statement, {"tm": tm, "np": np, "torch": torch})


def test_there_are_a_hundred_of_them() -> None:
    assert len(lines(NUMPY)) + len(lines(TORCH)) + len(RMM) >= 150
