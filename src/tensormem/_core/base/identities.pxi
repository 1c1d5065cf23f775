"""Owns: which file behind memory has which identity in this process: whoever maps the same file, by whatever
descriptor, gets the same number as long as one of them lives, and no number comes twice.

Must not know: what kind of memory it is.
"""
import threading
import weakref

from tensormem._core.native_tensor cimport next_storage_id

from tensormem import errors

# By (st_dev, st_ino): the number, how many hold it, and a reference to the block that counts it. The file cannot go, and its inode not be given to another, as
# long as one of them does.
cdef dict _identified = {}
cdef object _lock = threading.RLock()  # a holder may be dropped by the garbage collector in the middle of this


def new_identity():
    """A number that no memory of this process has had."""
    return next_storage_id()


def claim_identity(file, identity=None):
    """The number of the memory behind `file`, its (st_dev, st_ino): that of a live holder, else `identity` or a new one."""
    with _lock:
        entry = _identified.get(file)
        if entry is None:
            entry = _identified[file] = [next_storage_id() if identity is None else identity, 0, None]
        (<list>entry)[1] += 1
        return (<list>entry)[0]


def drop_identity(file):
    """Take one `claim_identity` back."""
    with _lock:
        entry = _identified.get(file)
        if entry is None:
            raise errors.InternalError(f"nobody holds the memory behind file {file}")
        (<list>entry)[1] -= 1
        if (<list>entry)[1] == 0:
            del _identified[file]


def share_block(file, block):
    """Say that `block` is what the memory behind `file` is counted by, for whoever maps it once more."""
    with _lock:
        entry = _identified.get(file)
        if entry is not None and shared_block(file) is None:
            (<list>entry)[2] = weakref.ref(block)


def shared_block(file):
    """The block that a live holder of the memory behind `file` counts it by; None if none does."""
    with _lock:
        entry = _identified.get(file)
        reference = None if entry is None else (<list>entry)[2]
    block = None if reference is None else reference()
    return block if block is not None and block.state == "live" else None


def live_identities():
    """How many files have an identity now."""
    return len(_identified)
