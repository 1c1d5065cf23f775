"""Owns: the checks of tensors that go out by DLPack and come back."""

from __future__ import annotations

from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import expect
from tensormem.tensor import from_dlpack, full

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("dlpack", "DLPack", gpu_only=False)
_TYPES = {"host": 1, "cuda": 2, "rocm": 10}


@GROUP.check
def round_trip(subject: Subject) -> None:
    """A tensor comes back as the same memory, shape and type."""
    source = full((3, 5), 7, "int32", space=subject.space)
    again = from_dlpack(source)
    expect(again.storage.id == source.storage.id, "it is other memory")
    expect((again.shape, str(again.dtype)) == (source.shape, str(source.dtype)), f"it is {again!r}")
    expect(again.to("main").tolist() == [[7] * 5] * 3, "it has other values")


@GROUP.check
def device(subject: Subject) -> None:
    """A tensor names its device as DLPack does."""
    said = full(3, 7, "int32", space=subject.space).__dlpack_device__()
    expect(said == (_TYPES[subject.driver.name], subject.driver.device), f"it says {said}")
