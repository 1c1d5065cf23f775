from tensormem._core.drivers import Driver
from tensormem._core.streams import Stream
from tensormem._core.tensors import Tensor

def copy_on_host(to: Tensor, source: Tensor, driver: Driver, stream: Stream | None = None) -> int: ...
def copy_by_driver(
    to: Tensor,
    source: Tensor,
    driver: Driver,
    stream: Stream | None = None,
    *,
    to_device: int,
    source_device: int,
    most_boxes: int = 4096,
) -> int: ...
def same_layout(to: Tensor, source: Tensor) -> None: ...
def overlap(a: Tensor, b: Tensor) -> bool: ...
