"""Owns: other processes that take part in a shared budget."""

import os
import subprocess
import sys
import textwrap
from multiprocessing.connection import Connection

from tensormem.pools import SharedBudget


class Peer:
    """A fresh Python that inherits the budget's descriptor, runs `source`, and answers line by line."""

    def __init__(self, budget: SharedBudget, source: str) -> None:
        os.set_inheritable(budget.fd, True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"FD = {budget.fd}\n" + textwrap.dedent(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[budget.fd],
            text=True,
        )

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        self.process.communicate()


def claim_in_a_process(budget: SharedBudget, channel: Connection) -> None:
    budget.claim(300)
    channel.send((budget.name, os.getpid()))
    channel.recv()
    budget.give_back(300)
