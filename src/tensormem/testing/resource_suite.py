"""Owns: what every part of the conformance suite of resources stands on: how one is made, and what may be left.

Must not know: any particular resource, and what is promised (the parts say that).
"""

import threading
from collections.abc import Iterator

import pytest

from tensormem.mr import DeviceBlock, DeviceMemoryResource, HostMemoryResource
from tensormem.streams import Stream, default_stream
from tensormem.testing.applicability import Suite

__all__ = ["Gate", "ResourceSuite", "free_all"]


class Gate:
    """Work that holds a stream until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def hold(self, stream: Stream) -> None:
        """Queue work on `stream` that waits for `open`."""
        stream.launch(self._open.wait)

    def open(self) -> None:
        """Let the stream go on."""
        self._open.set()


class ResourceSuite(Suite):
    """How the resource under test is made. Say it in `make_over` if it stands on an upstream, in `make` if not.

    A resource whose memory the CPU cannot touch, that does not track uses, or whose streams are not the host's says so
    in the attributes: cases that need it are left out by name, and `left_out` has them. A wrong answer fails.
    """

    host_accessible = True
    """Whether the CPU can touch the memory."""
    tracks_block_uses = True
    """Whether uses of a block by other streams are tracked."""
    on_the_host = True
    """Whether its streams are the host's, whose events can be counted."""
    makes_system_calls = True
    """Whether its memory comes by system calls of tensormem, which can be made to fail."""
    cpu_cannot_touch = False
    """The opposite of `host_accessible`; found by itself."""
    stands_on_an_upstream = False
    """Whether `make_over` was given; found by itself."""

    def __init_subclass__(cls) -> None:
        cls.cpu_cannot_touch = not cls.host_accessible
        cls.stands_on_an_upstream = cls.make_over is not ResourceSuite.make_over
        super().__init_subclass__()

    def make_over(self, upstream: DeviceMemoryResource) -> DeviceMemoryResource:
        """A fresh resource over `upstream` that has taken nothing from it yet."""
        raise NotImplementedError("say how to make the resource")

    def make(self) -> DeviceMemoryResource:
        """A fresh resource with at least 64 MiB to give."""
        return self.make_over(HostMemoryResource())

    @pytest.fixture
    def mr(self) -> Iterator[DeviceMemoryResource]:
        """What `make` builds; at the end nothing of it may be out."""
        resource = self.make()
        # Before anybody touches memory that is not there to be touched.
        assert resource.is_host_accessible == self.host_accessible, "host_accessible is declared wrongly"
        yield resource
        default_stream(resource.driver).synchronize()
        resource.reap_pending()
        assert resource.bytes_outstanding == 0, "a test left memory behind"

    @pytest.fixture
    def stream(self, mr: DeviceMemoryResource) -> Iterator[Stream]:
        """A stream of the resource's driver."""
        with Stream(mr.driver) as stream:
            yield stream


def free_all(mr: DeviceMemoryResource, blocks: list[DeviceBlock]) -> None:
    """Give all of them back."""
    for block in blocks:
        mr.deallocate(block)
