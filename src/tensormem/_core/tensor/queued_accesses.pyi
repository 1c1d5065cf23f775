from typing import final

from tensormem._core.base.streams import Stream
from tensormem._core.tensor.tensors import Tensor
from tensormem._core.tensor.transfers import TransferReport

@final
class Bracket: ...

@final
class QueuedAccess: ...

def fill_in_turn(tensor: Tensor, pattern: bytes, work: Stream, report: TransferReport) -> None: ...
