from typing import final

@final
class Accesses: ...
