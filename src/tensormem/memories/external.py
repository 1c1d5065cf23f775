"""Owns: storages over memory that another device or API made and handed over by descriptor, in the space of a GPU.

A camera's DMA-BUF is the case it is for: the GPU reads the frame where it lies. Must not know: tensors, who made it.
"""

from __future__ import annotations

import os
from typing import SupportsIndex

from tensormem import errors, units
from tensormem._core import Driver, Storage, adopt_storage, claim_identity, drop_identity
from tensormem.drivers import GPUS, resolve
from tensormem.memories.kinds import TensorMemory
from tensormem.memories.mem import vendor_of
from tensormem.mr import get_kind_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["import_external"]


class _ExternalMemory:
    """What one import holds: memory of a driver, and the identity of the file behind it."""

    def __init__(self, driver: Driver, address: int, file: tuple[int, int]) -> None:
        self._driver = driver
        self._address = address
        self._file = file
        self.id = claim_identity(file)

    def release(self) -> None:
        try:
            self._driver.release_external(self._address)
        finally:
            drop_identity(self._file)


def import_external(
    fd: int, space: WhereLike = "gpu:0", *, nbytes: SupportsIndex | str | None = None, tag: str | None = None
) -> Storage:
    """The memory behind a descriptor as a storage in a GPU's space. Without `nbytes`, all of it.

    The descriptor stays the caller's. The CPU goes on seeing the same bytes through it: what is made of them with
    `from_fd` has the same identity.
    """
    where = resolve(space, GPUS, "memory of others is imported by descriptor")
    wanted = where.space
    size = _size_of(fd) if nbytes is None else units.parse_size(nbytes)
    try:
        driver = where.driver
    except errors.DriverUnavailable as refused:
        raise errors.MemoryUnavailable(str(where), str(refused)) from None
    device_type, device_id = wanted.to_dlpack(vendor_of(driver))
    address = driver.import_external(fd, size)
    try:
        status = os.fstat(fd)
        file = status.st_dev, status.st_ino
        owner = _ExternalMemory(driver, address, file)
    except BaseException:
        driver.release_external(address)
        raise
    kind = TensorMemory.DMA if _is_dma_buf(fd) else TensorMemory.SHM
    imported = Storage(
        address,
        size,
        owner=owner,
        id=owner.id,
        space=wanted,
        memory=kind,
        device=(int(device_type), device_id),
        driver=driver,
        host_accessible=False,
        reason="memory of others, imported by descriptor",
    )
    storage: Storage = adopt_storage(get_kind_resource(kind, driver), imported, file=file, tag=tag)
    return storage


def _size_of(fd: int) -> int:
    try:
        size = os.fstat(fd).st_size
    except (OSError, OverflowError):
        raise errors.InvalidArgument(f"{fd!r} is no open file descriptor") from None
    if size <= 0:
        raise errors.InvalidSize(0, what="the descriptor does not tell how much memory is behind it; give nbytes")
    return size


def _is_dma_buf(fd: int) -> bool:
    return os.readlink(f"/proc/self/fd/{fd}").startswith("/dmabuf:")
