"""Owns: a stream that another thread is closing while its work is held up."""

import threading

from tensormem import errors
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing.resources import Gate


class Closing:
    """`start` returns when the stream takes no more work; `finish` lets its work end, and the stream with it."""

    def __init__(self) -> None:
        self.stream = Stream(host())
        self._gate = Gate()
        self._gate.hold(self.stream)
        self._closer = threading.Thread(target=self.stream.close)

    def start(self) -> None:
        self._closer.start()
        try:
            while not self.stream.done:
                pass
        except errors.StreamMisuse:
            return

    def finish(self) -> None:
        self._gate.open()
        if self._closer.ident is None:
            self.stream.close()
        else:
            self._closer.join()
