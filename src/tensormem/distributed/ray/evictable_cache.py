"""Owns: a cache of values that an actor can do without for a while: under pressure the oldest go into Ray's object
store, which spills to disk by itself, and come back when they are asked for.

Must not know: who is short of memory.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, MutableMapping
from typing import Any

import ray

from tensormem.closable import Closable
from tensormem.distributed.frozen_value import FrozenValue, size_of
from tensormem.distributed.process_stack import installed
from tensormem.distributed.worker_stack import WorkerStack
from tensormem.errors import DistributedError

__all__ = ["EvictableCache"]

_log = logging.getLogger(__name__)


class EvictableCache(Closable, MutableMapping[Hashable, Any]):
    """A mapping whose values leave the node's budget under pressure, the least recently used first.

    What comes back lies in the current resource again, so it may be refused (`NodeOutOfMemory`) and stays where it was;
    its tensors and arrays can be written if they could be. A value may be anything that can be pickled, such as a pair
    of tensors. Who else holds a value keeps its memory: letting go of it here frees it only when nobody does.
    """

    def __init__(self, stack: WorkerStack | None = None) -> None:
        found = installed() if stack is None else stack
        if found is None:
            raise DistributedError("this process was not set up: see tensormem.distributed.ray.runtime_env")
        self._stack = found
        self._lock = threading.Lock()  # never held while memory is allocated or Ray is called
        self._here: OrderedDict[Hashable, Any] = OrderedDict()
        self._away: dict[Hashable, tuple[ray.ObjectRef, int]] = {}
        self._leaving: set[Hashable] = set()  # on their way, each by one thread
        found.on_pressure(self.evict, lambda: self.evicted_bytes)

    @property
    def evicted_bytes(self) -> int:
        """What lies in the object store now."""
        with self._lock:
            return sum(nbytes for _, nbytes in self._away.values())

    @property
    def evicted_keys(self) -> list[Hashable]:
        """Whose values lie in the object store now."""
        with self._lock:
            return list(self._away)

    def evict(self, wanted: int) -> int:
        """Move values worth `wanted` bytes into the object store; says how many bytes went. A full store ends it."""
        gone = 0
        tried: set[Hashable] = set()
        while gone < wanted:
            with self._lock:
                key = next((each for each in self._here if each not in tried and each not in self._leaving), None)
                if key is None:
                    break
                tried.add(key)
                self._leaving.add(key)
            try:
                gone += self._send_away(key)
            except ray.exceptions.RayError:
                break  # the object store is full, and the value stays
            finally:
                with self._lock:
                    self._leaving.discard(key)
        return gone

    def _send_away(self, key: Hashable) -> int:
        """Says how many bytes went. Holds the value for no longer: whoever counts what is free counts right after."""
        with self._lock:
            if key not in self._here:
                return 0
            value = self._here[key]
        try:
            frozen = FrozenValue.of(value)
        except Exception:
            _log.exception("the value of %r cannot be pickled, so it stays", key)
            return 0
        reference, nbytes = ray.put(frozen), size_of(frozen)
        with self._lock:
            if key not in self._here or self._here[key] is not value:  # somebody replaced it meanwhile
                return 0
            del self._here[key]
            self._away[key] = reference, nbytes
        return nbytes

    def __getitem__(self, key: Hashable) -> Any:
        with self._lock:
            if key in self._here:
                self._here.move_to_end(key)
                return self._here[key]
            reference, _ = self._away[key]
        value = ray.get(reference).thawed()  # out of the store's memory, into ours
        with self._lock:
            if self._away.pop(key, None) is not None:
                self._here[key] = value
        return value

    def __setitem__(self, key: Hashable, value: Any) -> None:
        with self._lock:
            self._away.pop(key, None)
            self._here[key] = value
            self._here.move_to_end(key)

    def __delitem__(self, key: Hashable) -> None:
        with self._lock:
            if self._away.pop(key, None) is None:
                del self._here[key]

    def __iter__(self) -> Iterator[Hashable]:
        with self._lock:
            return iter([*self._here, *self._away])

    def __len__(self) -> int:
        with self._lock:
            return len(self._here) + len(self._away)

    def close(self) -> None:
        """Be asked no more, and let go of everything."""
        self._stack.forget(self.evict)
        with self._lock:
            self._here.clear()
            self._away.clear()
