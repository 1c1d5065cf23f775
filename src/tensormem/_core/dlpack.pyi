from typing import Any, SupportsIndex, final

from tensormem._core.tensors import Tensor
from tensormem.spaces import LogicalMemorySpace

@final
class ForeignTensor: ...

def install(above: object, main: LogicalMemorySpace, memory: str) -> None: ...
def from_dlpack(
    x: Any,
    /,
    *,
    device: LogicalMemorySpace | str | tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Tensor: ...
def time_exchange(x: Any, rounds: SupportsIndex) -> float: ...
