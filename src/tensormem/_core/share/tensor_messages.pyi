from typing import NamedTuple

from tensormem._core.tensor.tensors import Tensor
from tensormem.dtypes import DType

MAX_MESSAGE_BYTES: int

class MessageFacts(NamedTuple):
    is_ring: bool
    descriptors: int
    readonly: bool
    dtype: DType | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    capacity: int

def describe_tensor(tensor: Tensor, readonly: bool) -> bytes: ...
def describe_ring(capacity: int, readonly: bool) -> bytes: ...
def parse(data: bytes | bytearray | memoryview) -> MessageFacts: ...
