"""Every flavour of PyTorch's tensors arrives with its values or is refused, on every way in."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tensormem as tm

_COMPLEX = torch.tensor([1 - 2j, 3 + 4j])


class Subclass(torch.Tensor):
    pass


def _quantized() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)


def _sparse_csr() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.eye(2).to_sparse_csr()


FLAVOURS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.arange(6).reshape(2, 3),
    "complex": lambda: _COMPLEX,
    "conjugate": lambda: _COMPLEX.conj(),
    "conjugate of a conjugate": lambda: _COMPLEX.conj().conj(),
    "resolved": lambda: _COMPLEX.conj().resolve_conj(),
    "negative": lambda: _COMPLEX.conj().imag,
    "negative of one element": lambda: _COMPLEX.conj().imag[0],
    "negative without gaps": lambda: torch._neg_view(torch.ones(3)),
    "negative with strides of its own": lambda: _COMPLEX.conj().imag.as_strided((2,), (1,)),
    "conjugate transpose": lambda: _COMPLEX.reshape(1, 2).mH,
    "real part": lambda: _COMPLEX.conj().real,
    "imaginary part": lambda: _COMPLEX.imag,
    "transposed": lambda: torch.arange(6).reshape(2, 3).T,
    "every other": lambda: torch.arange(6)[::2],
    "expanded": lambda: torch.ones(3).expand(2, 3),
    "empty": lambda: torch.ones(0, 3),
    "without dimensions": lambda: torch.tensor(2.5),
    "with a gradient": lambda: torch.ones(3, requires_grad=True),
    "a result with a gradient": lambda: torch.ones(3, requires_grad=True) * 2,
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "subclass": lambda: torch.ones(3).as_subclass(Subclass),
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "sparse": lambda: torch.eye(2).to_sparse(),
    "sparse rows": _sparse_csr,
    "quantized": _quantized,
    "meta": lambda: torch.ones(3, device="meta"),
    "zero tensor": lambda: torch._efficientzerotensor(3),
    "mkldnn": lambda: torch.ones(3).to_mkldnn(),
}
REFUSED = {"sparse", "sparse rows", "quantized", "meta", "zero tensor", "mkldnn"}
LAZY = {"conjugate", "conjugate transpose"} | {name for name in FLAVOURS if name.startswith("negative")}
WAYS: dict[str, Callable[[Any], tm.Tensor]] = {
    "from_dlpack": tm.from_dlpack,
    "a capsule": lambda source: tm.from_dlpack(source.__dlpack__()),
    "on a device": lambda source: tm.from_dlpack(source, device="main"),
    "with a copy": lambda source: tm.from_dlpack(source, copy=True),
    "wrap": tm.wrap,
    "from_torch": tm.interop.torch.from_torch,
}


# PyTorch itself gives out a capsule without the sign, and nobody can see in it that there was one.
_UNSEEN = {(name, "a capsule") for name in FLAVOURS if name.startswith("negative")}


@pytest.mark.parametrize(
    ("flavour", "way"), [(flavour, way) for flavour in FLAVOURS for way in WAYS if (flavour, way) not in _UNSEEN]
)
def test_values_arrive_or_are_refused(flavour: str, way: str) -> None:
    source = FLAVOURS[flavour]()
    try:
        taken = WAYS[way](source)
    except (BufferError, RuntimeError) as refusal:
        assert flavour in REFUSED | LAZY or "gradient" in flavour or flavour == "parameter", refusal
        return
    assert flavour not in LAZY
    assert taken.tolist() == source.detach().clone().tolist()


@pytest.mark.parametrize("flavour", sorted(set(FLAVOURS) - REFUSED))
def test_asarray_resolves_what_is_lazy(flavour: str) -> None:
    source = FLAVOURS[flavour]()
    assert tm.asarray(source).tolist() == source.detach().tolist()
    if flavour in LAZY:
        with pytest.raises(ValueError, match="copied"):
            tm.asarray(source, copy=False)
