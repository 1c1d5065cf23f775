"""The other process of test_sharing (`python peer.py SOCKET`): fills the buffer it is given, and gives one back."""

import signal
import socket
import sys

from tensormem.memories import dma


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    _, (fd,), _, _ = socket.recv_fds(channel, 16, 1)
    given = dma.from_fd(fd)
    with given.map("rw") as mapped:
        memoryview(mapped)[:5] = bytes(memoryview(mapped)[5:10])
    own = dma.allocate(8192, name="of the peer")
    with own.map("w") as mapped:
        memoryview(mapped)[:4] = b"back"
    socket.send_fds(channel, [b"filled"], [own.owner.export_fd()])
    signal.pause()  # until it is killed, with both buffers open and mapped


if __name__ == "__main__":
    main()
