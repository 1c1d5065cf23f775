from typing import final

from tensormem._core.endings import Ending

@final
class Accesses(Ending): ...
