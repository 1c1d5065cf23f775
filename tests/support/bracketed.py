"""Owns: an owner of memory that is told of every access, remembers what it was told, and can be made to refuse."""

import mmap
from ctypes import addressof, c_char

import tensormem as tm
from tensormem.memories import Storage, TensorMemory


class Bracketed:
    """Memory with brackets. `log` has what was called; `refuse` is raised by the next begin, `fail` by the next end."""

    def __init__(self, nbytes: int) -> None:
        self.memory = (c_char * nbytes).from_buffer(mmap.mmap(-1, nbytes))
        self.log: list[str] = []
        self.kept: object = None
        self.refuse: BaseException | None = None
        self.fail: BaseException | None = None

    def begin_access(self, mode: str) -> int:
        refuse, self.refuse = self.refuse, None
        if refuse is not None:
            raise refuse
        self.log.append(f"begin {mode}")
        return addressof(self.memory)

    def end_access(self, mode: str) -> None:
        self.log.append(f"end {mode}")
        fail, self.fail = self.fail, None
        if fail is not None:
            raise fail

    def release(self) -> None:
        self.log.append("release")

    def storage(self, *, readonly: bool = False, memory: str = TensorMemory.MEM) -> Storage:
        """A storage that has an address only while it is mapped."""
        return Storage(
            0,
            len(self.memory),
            owner=self,
            space=tm.main,
            memory=memory,
            device=(1, 0),
            driver=tm.drivers.host(),
            host_accessible=False,
            readonly=readonly,
        )

    def told(self) -> list[str]:
        """What was called since the last time."""
        log, self.log = self.log, []
        return log
