"""Owns: the attack from within: what the library calls back while it works (`__index__`, `__iter__`, `__cuda_stream__`,
`__del__`, callbacks, sinks, work of streams) closes, frees, drops, calls again and raises, on the object that calls.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from random import Random
from typing import Any

import tensormem as tm
from attacks import arguments
from attacks.hostile_values import close_descriptors, plausible
from attacks.live_objects import MAKERS, new_path
from attacks.outcome import Expected, Outcome
from attacks.suite import Note, Suite
from tensormem import mr, pools, streams

__all__ = ["SUITE"]

_MOST_DEPTH = 3


class _Meddling(Expected):
    """Raised by what was called back."""


class _Meddler:
    """Does something to its victims whenever it is asked, then answers as a small number, a shape, a stream, a path."""

    def __init__(self, draw: Random, victims: list[Any]) -> None:
        self._draw, self._victims, self._depth = draw, victims, 0

    def act(self, *_: object, **__: object) -> Any:
        """One thing, chosen anew every time."""
        if self._depth >= _MOST_DEPTH:
            return None
        self._depth += 1
        try:
            return self._draw.choice(_ACTIONS)(self._draw, self._victims, self)
        except _Meddling:
            raise
        except Exception:
            return None
        finally:
            self._depth -= 1

    def __index__(self) -> int:
        self.act()
        return self._draw.choice([0, 1, 256, 4096])

    __int__ = __index__

    def __len__(self) -> int:
        self.act()
        return 2

    def __iter__(self) -> Any:
        for number in (2, 3):
            self.act()
            yield number

    def __getitem__(self, item: int) -> int:
        if item > 1:
            raise IndexError
        return int(self)

    def __cuda_stream__(self) -> tuple[int, int]:
        self.act()
        return 0, 0

    def __fspath__(self) -> str:
        self.act()
        return str(new_path())

    def __str__(self) -> str:
        self.act()
        return "main"

    def __float__(self) -> float:
        self.act()
        return 0.01

    def __bool__(self) -> bool:
        self.act()
        return True

    def __eq__(self, other: object) -> bool:
        self.act()
        return False

    def __hash__(self) -> int:
        return 7

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.act(*args, **kwargs)


class _Dying:
    """Meddles when it is dropped."""

    def __init__(self, meddler: _Meddler) -> None:
        self._meddler = meddler

    def __del__(self) -> None:
        try:
            self._meddler.act()
        except _Meddling:
            return


def _close(draw: Random, victims: list[Any], _: _Meddler) -> Any:
    victim = draw.choice(victims)
    getattr(victim, "close", lambda: None)()


def _free(draw: Random, victims: list[Any], _: _Meddler) -> Any:
    block = draw.choice([each for each in victims if isinstance(each, mr.DeviceBlock)])
    block.mr.deallocate(block)


def _drop(draw: Random, victims: list[Any], _: _Meddler) -> Any:
    if len(victims) > 1:
        victims.pop(draw.randrange(len(victims)))
    gc.collect(0)


def _again(draw: Random, victims: list[Any], meddler: _Meddler) -> Any:
    victim = draw.choice(victims)
    name = draw.choice(arguments.methods_of(victim))
    found = getattr(victim, name)
    return found(meddler) if callable(found) and name not in arguments.WAITS else None


def _allocate(draw: Random, victims: list[Any], _: _Meddler) -> Any:
    resource = draw.choice([each for each in victims if isinstance(each, mr.DeviceMemoryResource)])
    victims.append(resource.allocate(draw.choice([64, 4096, 2**20])))
    return True


def _raise(draw: Random, victims: list[Any], _: _Meddler) -> Any:
    raise _Meddling


def _answer(draw: Random, victims: list[Any], _: _Meddler) -> Any:
    return draw.choice([True, False, None, 0, "text"])


def _trim(draw: Random, victims: list[Any], _: _Meddler) -> Any:
    victim = draw.choice([each for each in victims if hasattr(each, "trim")])
    victim.trim()


_ACTIONS: list[Callable[[Random, list[Any], _Meddler], Any]] = [
    _close,
    _free,
    _drop,
    _again,
    _allocate,
    _raise,
    _answer,
    _trim,
]


# --- What calls back on purpose ---


def _failing(draw: Random, victims: list[Any], meddler: _Meddler) -> None:
    small = mr.LimitingResourceAdaptor(mr.HostMemoryResource(), 8192)
    retried = mr.FailureCallbackResourceAdaptor(small, meddler)
    victims += [small, retried, retried.allocate(4096)]
    for nbytes in (4096, 8192, 100):
        victims.append(retried.allocate(nbytes))


def _pressing(draw: Random, victims: list[Any], meddler: _Meddler) -> None:
    made = mr.PressureResourceAdaptor(mr.HostMemoryResource(), meddler, warn=4096, critical=8192)
    victims.append(made)
    for _ in range(4):
        victims.append(made.allocate(4096))


def _called(draw: Random, victims: list[Any], meddler: _Meddler) -> None:
    below = mr.PoolMemoryResource(mr.HostMemoryResource())
    kept: dict[int, Any] = {}

    def allocate(nbytes: int, *rest: object) -> int:
        block = below.allocate(nbytes)
        kept[block.ptr] = block
        meddler.act()
        return int(block.ptr)

    def deallocate(address: int, *rest: object) -> None:
        meddler.act()
        block = kept.pop(address, None)
        if block is not None:
            below.deallocate(block)

    made = mr.CallbackMemoryResource(allocate, deallocate)
    top = mr.PoolMemoryResource(made) if draw.random() < 0.5 else made
    victims += [made, top]
    for _ in range(3):
        victims.append(top.allocate(draw.choice([64, 4096])))
    top.deallocate(victims[-1])


def _launched(draw: Random, victims: list[Any], meddler: _Meddler) -> None:
    stream = streams.Stream(tm.drivers.host())
    event = streams.Event(tm.drivers.host())
    victims += [stream, event]

    def work(*_: object) -> None:
        try:
            meddler.act()
        except _Meddling:
            return

    for _ in range(3):
        stream.launch(work)
    event.record(stream)
    stream.synchronize()


def _tenants(draw: Random, victims: list[Any], meddler: _Meddler) -> None:
    shared = pools.TenantPool("8MiB")
    first = shared.register("a", "16MiB", on_pressure=meddler)
    second = shared.register("b", "16MiB", on_pressure=meddler)
    victims += [shared, first, second]
    for _ in range(3):
        victims.append(first.allocate("2MiB"))
    for _ in range(3):
        victims.append(second.allocate("2MiB"))


def _budgets(draw: Random, victims: list[Any], meddler: _Meddler) -> None:
    first = pools.SharedBudget.create(8192, name="a", patience=0.02, on_pressure=meddler)
    second = pools.SharedBudget.attach(first.fd, name="b", patience=0.02, on_pressure=meddler)
    victims += [first, second]
    first.claim(6000)
    second.claim(4000)


def _exports(draw: Random, victims: list[Any], meddler: _Meddler) -> None:
    import numpy

    tensor = tm.full((3, 4), 7, "int32", memory=draw.choice(["mem", "shm"]))
    array = numpy.from_dlpack(tensor)
    weakref.finalize(array, meddler.act)
    victims += [tensor, tensor.storage]
    meddler.act()
    array[0, 0] = 5  # the bytes are held, whatever happened to the tensor
    del array
    gc.collect(0)


def _owned(draw: Random, victims: list[Any], meddler: _Meddler) -> None:
    """Memory of others, whose end meddles."""
    import numpy

    source = numpy.zeros(64, "u1")
    weakref.finalize(source, meddler.act)
    tensor = tm.from_numpy(source)
    victims += [tensor, tensor.storage]
    del source
    meddler.act()
    victims.append(tensor[3:])


def _dropped(draw: Random, victims: list[Any], meddler: _Meddler) -> None:
    kind = draw.choice(list(MAKERS))
    cycle: list[Any] = [MAKERS[kind](), _Dying(meddler)]
    cycle.append(cycle)
    victims.append(cycle[0])
    del cycle
    gc.collect()


def _any_call(draw: Random, victims: list[Any], meddler: _Meddler) -> None:
    target = victims[0]
    name = draw.choice(arguments.methods_of(target) or ["__repr__"])
    found = getattr(target, name)
    if not callable(found):
        return
    parameters = arguments.parameters(found) or []
    values = {
        each.name: meddler if draw.random() < 0.6 and each.name != "timeout" else plausible(draw, each.name)
        for each in parameters
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        and (each.default is each.empty or draw.random() < 0.7 or each.name == "timeout")
    }
    arguments.bounded(name, lambda: found(**values) if values else found(meddler))


_CALLERS = [_any_call] * 12 + [
    _failing,
    _pressing,
    _called,
    _launched,
    _tenants,
    _budgets,
    _exports,
    _owned,
    _dropped,
]


def _case(draw: Random, note: Note) -> Outcome:
    attack = draw.choice(_CALLERS)
    kind = draw.choice(list(MAKERS))
    victims: list[Any] = [MAKERS[kind](), mr.PoolMemoryResource(mr.HostMemoryResource())]
    victims.append(victims[1].allocate(4096))
    note(f"{attack.__name__} with {kind}")
    try:
        attack(draw, victims, _Meddler(draw, victims))
    except _Meddling:
        return Outcome.REFUSED
    except TimeoutError:
        return Outcome.WAITED
    finally:
        close_descriptors()
        victims.clear()
    return Outcome.FINE


SUITE = Suite(
    "reentrancy",
    "What is called back in the middle of a call may close, free, drop, call again and raise: nothing is used after "
    "its end, and no lock is held meanwhile.",
    _case,
    share=0.06,
    batch=200,
    prepare=arguments.prepare,
    begin=arguments.begin,
)
