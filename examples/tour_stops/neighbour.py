"""Owns: the other process of the sharing stop. Given a file descriptor, it reads the memory and answers in it."""

import ctypes
import sys

import tensormem as tm


def main(fd: int, answer: bytes) -> None:
    driver = tm.drivers.host()
    physical = driver.physical_import(fd)
    nbytes = driver.physical_info(physical)["size"]
    base = driver.reserve(nbytes, alignment=nbytes)
    driver.map(base, nbytes, physical)
    driver.set_access(base, nbytes, "read_write")
    print(ctypes.string_at(base).decode())
    ctypes.memmove(base, answer + b"\0", len(answer) + 1)
    driver.unmap(base, nbytes)
    driver.physical_destroy(physical)
    driver.release(base, nbytes)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2].encode())
