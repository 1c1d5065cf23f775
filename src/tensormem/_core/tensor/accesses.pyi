from typing import final

from tensormem._core.tensor.endings import Ending

@final
class Accesses(Ending): ...
