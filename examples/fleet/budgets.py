"""Owns: the two ways to divide the memory of a node among its models: who may have how much, for many nodes at once.

The elastic way follows the rules of `SharedBudget`: whoever comes first is served first, and what others are guaranteed
and do not use yet stays free for them. Nobody is asked to give back here: what was let in stays to its end.
Must not know: where requests come from.
"""

import numpy
from numpy.typing import NDArray

Bytes = NDArray[numpy.int64]
Models = NDArray[numpy.int64]


class StaticBudgets:
    """Every model has an equal part of its node, and no more. `node_bytes` has the memory of each node."""

    name = "static"

    def __init__(self, models: int, node_bytes: Bytes) -> None:
        self.node_bytes, self.share = node_bytes, node_bytes // models
        self.total: Bytes = numpy.zeros(len(node_bytes), numpy.int64)
        self._used: Bytes = numpy.zeros(len(node_bytes) * models, numpy.int64)
        self._first = numpy.arange(len(node_bytes), dtype=numpy.int64) * models

    @property
    def used(self) -> Bytes:
        """By node and model."""
        return self._used.reshape(len(self.total), -1)

    def fits(self, model: Models, nbytes: Bytes) -> NDArray[numpy.bool_]:
        """For each node: whether its `model` can have so much more."""
        return self._used.take(self._first + model) + nbytes <= self.share

    def add(self, model: Models, nbytes: Bytes) -> None:
        """Each node's `model` has so much more; less if it is negative."""
        self._used[self._first + model] += nbytes
        self.total += nbytes

    def fits_one(self, node: int, model: int, nbytes: int) -> bool:
        """The same for one node."""
        return bool(self.used[node, model] + nbytes <= self.share[node])

    def add_one(self, node: int, model: int, nbytes: int) -> None:
        """The same for one node."""
        self.used[node, model] += nbytes
        self.total[node] += nbytes

    def is_valid(self) -> bool:
        """Whether nobody has more than it may have, and the sums are right."""
        within = bool((self.used >= 0).all() and (self.used <= self.share[:, None]).all())
        return within and bool((self.used.sum(axis=1) == self.total).all())


class ElasticBudgets:
    """The models of a node share all of it; each is guaranteed a quarter of what it would have by itself."""

    name = "elastic"

    def __init__(self, models: int, node_bytes: Bytes) -> None:
        self.node_bytes, self.guaranteed = node_bytes, node_bytes // models // 4
        self.total: Bytes = numpy.zeros(len(node_bytes), numpy.int64)
        self._used: Bytes = numpy.zeros(len(node_bytes) * models, numpy.int64)
        self._kept: Bytes = models * self.guaranteed  # guaranteed and not used
        self._first = numpy.arange(len(node_bytes), dtype=numpy.int64) * models

    @property
    def used(self) -> Bytes:
        """By node and model."""
        return self._used.reshape(len(self.total), -1)

    def fits(self, model: Models, nbytes: Bytes) -> NDArray[numpy.bool_]:
        """For each node: whether its `model` can have so much more."""
        own = numpy.maximum(self.guaranteed - self._used.take(self._first + model), 0)
        fitting: NDArray[numpy.bool_] = self.total + self._kept - own + nbytes <= self.node_bytes
        return fitting

    def add(self, model: Models, nbytes: Bytes) -> None:
        """Each node's `model` has so much more; less if it is negative."""
        place = self._first + model
        before = self._used.take(place)
        after = before + nbytes
        self._used[place] = after
        self._kept += numpy.maximum(self.guaranteed - after, 0) - numpy.maximum(self.guaranteed - before, 0)
        self.total += nbytes

    def fits_one(self, node: int, model: int, nbytes: int) -> bool:
        """The same for one node."""
        own = max(self.guaranteed[node] - self.used[node, model], 0)
        return bool(self.total[node] + self._kept[node] - own + nbytes <= self.node_bytes[node])

    def add_one(self, node: int, model: int, nbytes: int) -> None:
        """The same for one node."""
        before = self.used[node, model]
        self.used[node, model] += nbytes
        guaranteed = self.guaranteed[node]
        self._kept[node] += max(guaranteed - before - nbytes, 0) - max(guaranteed - before, 0)
        self.total[node] += nbytes

    def is_valid(self) -> bool:
        """Whether nobody has more than there is, guarantees are kept, and the sums are right."""
        kept = numpy.maximum(self.guaranteed[:, None] - self.used, 0).sum(axis=1)
        within = bool((self.used >= 0).all() and (self.total + kept <= self.node_bytes).all())
        return within and bool((self.used.sum(axis=1) == self.total).all() and (kept == self._kept).all())


Budgets = StaticBudgets | ElasticBudgets
POLICIES: dict[str, type[StaticBudgets] | type[ElasticBudgets]] = {
    budgets.name: budgets for budgets in (StaticBudgets, ElasticBudgets)
}
