"""Owns: the check of every stream that is given to RMM's calls. Must not know: what the stream is for."""

from typing import Any

from tensormem.public_functions import explain_misspellings
from tensormem.rmm.pylibrmm.stream import Stream

__all__ = ["as_stream"]


def as_stream(stream: Any) -> Stream:
    """The stream itself, or as ours if it is another library's; None is refused, as RMM does.

    >>> from tensormem.rmm.pylibrmm.stream import DEFAULT_STREAM
    >>> as_stream(DEFAULT_STREAM) is DEFAULT_STREAM
    True
    """
    if stream is None:
        raise TypeError("stream argument cannot be None. Please provide a valid Stream instance.")
    return stream if isinstance(stream, Stream) else Stream(stream)


explain_misspellings(globals())
