"""Owns: streams and events as users see them.

A stream is an ordered queue of work on a driver; an event is a point in one. The default stream of the host runs
inline. Wherever a stream is asked for, a `StreamLike` will do: ours, or anything with `__cuda_stream__`.
Must not know: resources and tensors.
"""

from tensormem import drivers
from tensormem._core import Event, Stream, StreamId, StreamLike, SupportsCudaStream
from tensormem.public_functions import explain_misspellings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["Event", "Stream", "StreamId", "StreamLike", "SupportsCudaStream", "default_stream"]


def default_stream(driver: "WhereLike | None" = None, device: "WhereLike | int | None" = None) -> Stream:
    """The default stream of a driver (the host's unless told): on the host, its work is done when the call returns.

    >>> from tensormem.streams import default_stream
    >>> default_stream().is_default
    True
    """
    return Stream.default(drivers.host() if driver is None else driver, device)


explain_misspellings(globals())
