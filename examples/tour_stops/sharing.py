"""Owns: the stop where another process maps the same memory, given nothing but a file descriptor."""

import ctypes
import os
import subprocess
import sys

import tensormem as tm
from tour_stops import neighbour
from tour_stops.guide import Guide

TITLE = "The same memory in another process"
SHARED_BYTES = 2 * 2**20
QUESTION, ANSWER = "are you there?", "yes, in the same bytes"


def ask_neighbour(fd: int) -> str:
    """Starts a process that inherits the descriptor; gives what it read."""
    command = [sys.executable, neighbour.__file__, str(fd), ANSWER]
    return subprocess.run(command, pass_fds=(fd,), check=True, timeout=60, stdout=subprocess.PIPE, text=True).stdout


def show(guide: Guide) -> None:
    driver = tm.drivers.host()
    physical = driver.physical_create(SHARED_BYTES, exportable=True)
    base = driver.reserve(SHARED_BYTES, alignment=SHARED_BYTES)
    driver.map(base, SHARED_BYTES, physical)
    driver.set_access(base, SHARED_BYTES, "read_write")
    ctypes.memmove(base, QUESTION.encode() + b"\0", len(QUESTION) + 1)
    fd = driver.physical_export(physical)
    read_there = ask_neighbour(fd).strip()
    os.close(fd)
    read_here = ctypes.string_at(base).decode()
    driver.unmap(base, SHARED_BYTES)
    driver.physical_destroy(physical)
    driver.release(base, SHARED_BYTES)

    rows = [("this process", QUESTION, read_here), ("its neighbour", ANSWER, read_there)]
    guide.table("who", "wrote", "then read", rows=rows, text_columns=3)
    guide.expect("the neighbour read what was written here", read_there == QUESTION)
    guide.expect("its answer appeared here, with no copy sent", read_here == ANSWER)
