"""Eight threads on one object, of every class that can be constructed: they read all of its properties and call all of
its methods at once, while one of them closes it. What comes is a value or an error, and the process lives.

With the GIL this meets what a wait lets in; without it (`make pythons`) it meets everything.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.constructions import HOST

TESTS = Path(__file__).resolve().parents[1]
NAMES = sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in HOST)

# In a process of its own, because what goes wrong between threads ends the process.
PROBE = r"""
import random, sys, threading, types, warnings
import tensormem as tm
from support.constructions import HOST

warnings.simplefilter("ignore")
THREADS, ROUNDS, STEPS = 8, 6, 60
SPECIAL = {"__repr__", "__str__", "__hash__", "__index__", "__enter__", "__len__", "__eq__", "__dlpack__",
           "__dlpack_device__", "__array_interface__", "__cuda_stream__"}
# These wait for somebody else, who is not there.
WAITING = {"read", "write", "take"}
ENDING = {"close", "__exit__", "release", "destroy", "free"}

cls = next(cls for cls in HOST if f"{cls.__module__}.{cls.__qualname__}" == sys.argv[1])
names = [name for name in dir(cls) if (not name.startswith("_") or name in SPECIAL) and name not in WAITING | ENDING]
endings = [name for name in dir(cls) if name in ENDING]


def touch(made, name, arguments):
    try:
        found = getattr(made, name)
        if callable(found):
            found = found(*arguments)
        if name == "allocate":
            made.deallocate(found)
    except Exception:
        pass


def write(made, name):
    try:
        setattr(made, name, getattr(made, name))
    except (AttributeError, TypeError, ValueError, tm.errors.TensormemError):
        pass


def work(made, number, start, round_):
    choice = random.Random(f"{round_} {number}")
    start.wait()
    for step in range(STEPS):
        name = choice.choice(names)
        touch(made, name, choice.choice([(), (64,), (made,), (0, 64)]))
        if isinstance(getattr(cls, name), property | types.GetSetDescriptorType):
            write(made, name)
        if number == 0 and step == STEPS // 2:
            for ending in endings:
                touch(made, ending, (None, None, None) if ending == "__exit__" else ())


for round_ in range(ROUNDS):
    args, kwargs = HOST[cls]()
    made = cls(*args, **kwargs)
    start = threading.Barrier(THREADS)
    threads = [threading.Thread(target=work, args=(made, number, start, round_)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del made, args, kwargs, threads
print("lived")
"""


@pytest.mark.parametrize("name", NAMES)
def test_eight_threads_touch_everything_of_one_object_and_the_process_lives(name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-c", PROBE, name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    ended = signal.Signals(-done.returncode).name if done.returncode < 0 else done.returncode
    assert (ended, done.stdout[-6:]) == (0, "lived\n"), done.stderr[-3000:]
