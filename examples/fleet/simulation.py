"""Owns: the simulation: many nodes, each with some models, walk around the same hour from moments of their own.

Event by event, all nodes at once: the k-th event of each node is handled in one step of NumPy. A request takes the
memory of its prompt and its whole answer when it comes, and gives it back when it goes; without room it is turned away.
Must not know: files, pictures, what a claim costs.
"""

from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

from fleet.budgets import POLICIES, Budgets
from fleet.outcome import NodeOutcomes, joined
from fleet.requests import Workload
from fleet.schedule import Schedule, make_schedule

MODELS = 4
POPULARITY = (0.48, 0.24, 0.16, 0.12)  # Zipf's law for four
FASHION_SECONDS = 600.0  # how long a model stays the first, the second ... of its node
BATCH = 10_000  # nodes that walk together
_INSIDE = numpy.uint8(0x80)


def simulate(
    workload: Workload, policy: str, nodes: int, *, node_bytes: int | None = None, seed: int = 0
) -> NodeOutcomes:
    """Walk `nodes` nodes once around the workload. The same seed gives the same nodes to every policy."""
    schedule = make_schedule(workload)
    limit = workload.node_bytes if node_bytes is None else node_bytes
    parts = []
    for first in range(0, nodes, BATCH):
        count = min(BATCH, nodes - first)
        walk = _Walk(workload, schedule, count, numpy.random.default_rng((seed, first)))
        parts.append(walk.run(POLICIES[policy](MODELS, numpy.full(count, limit, numpy.int64))))
    return joined(parts)


def admitted_shares(workload: Workload, budgets: Sequence[int], nodes: int, seed: int) -> list[float]:
    """The part of the requests that the elastic way lets in with each of `budgets`, on the same sample of nodes."""
    walk = _Walk(workload, make_schedule(workload), nodes, numpy.random.default_rng((seed, 0)), len(budgets))
    found = walk.run(POLICIES["elastic"](MODELS, numpy.repeat(numpy.array(budgets, numpy.int64), nodes)))
    return [float(part.sum() / nodes / len(workload)) for part in numpy.split(found.admitted, len(budgets))]


class _Walk:
    """Some nodes, `copies` times: where they begin, which model each request is for, and who is inside.

    Requests are counted from where a node begins, so that nodes which walk together touch memory that lies together.
    """

    def __init__(
        self, workload: Workload, schedule: Schedule, nodes: int, dice: numpy.random.Generator, copies: int = 1
    ) -> None:
        self.workload, self.schedule = workload, schedule
        starts = dice.integers(schedule.events, size=nodes)
        came: NDArray[numpy.int64] = numpy.cumsum(schedule.comes) - schedule.comes  # before each event
        first = came.take(starts) % len(workload)
        self.starts: NDArray[numpy.int64] = numpy.tile(starts, copies)
        self.first: NDArray[numpy.int64] = numpy.tile(first, copies)
        self.nodes = nodes * copies
        models = _choose_models(workload, first, dice)
        # One byte for each request of each node: its model, and whether it is inside.
        self.state: NDArray[numpy.uint8] = numpy.tile(models.T, (1, copies)).ravel()

    def run(self, budgets: Budgets) -> NodeOutcomes:
        """Once around, and then everybody goes."""
        schedule, sizes, count = self.schedule, self.workload.nbytes, len(self.workload)
        rows = numpy.arange(self.nodes)
        admitted, came, went, peak = (numpy.zeros(self.nodes, numpy.int64) for _ in range(4))
        weighted = numpy.zeros(self.nodes, numpy.float64)
        for step in range(schedule.events):
            at = self.starts + step
            request, comes = schedule.request.take(at), schedule.comes.take(at)
            nbytes = sizes.take(request)
            column = request - self.first
            place = (column + count * (column < 0)) * self.nodes + rows
            state = self.state.take(place)
            model = (state & 3).astype(numpy.int64)
            enters = comes & budgets.fits(model, nbytes)
            leaves = state >= _INSIDE  # who comes has not been here: everybody comes once
            taken, given = nbytes * enters, nbytes * leaves
            budgets.add(model, taken - given)
            self.state[place] = (state & 3) | (enters * _INSIDE)
            admitted += enters
            came += taken
            went += given
            numpy.maximum(peak, budgets.total, out=peak)
            weighted += budgets.total * schedule.gap.take(at)
        assert budgets.is_valid()
        went += self._drain(budgets)
        left = numpy.abs(budgets.used).sum(axis=1)
        return NodeOutcomes(budgets.node_bytes, admitted, came, went, left, peak, weighted / schedule.period)

    def _drain(self, budgets: Budgets) -> NDArray[numpy.int64]:
        """Whoever is still inside goes; says how many bytes of each node did."""
        column, node = numpy.divmod(numpy.flatnonzero(self.state >= _INSIDE), self.nodes)
        nbytes = self.workload.nbytes.take((column + self.first.take(node)) % len(self.workload))
        model = self.state.take(column * self.nodes + node) & 3
        numpy.subtract.at(budgets.used, (node, model), nbytes)
        gone = numpy.zeros(self.nodes, numpy.int64)
        numpy.add.at(gone, node, nbytes)
        return gone


def _choose_models(
    workload: Workload, first: NDArray[numpy.int64], dice: numpy.random.Generator
) -> NDArray[numpy.uint8]:
    """Which model each request of each node is for: a few are popular, and which ones changes with time."""
    nodes, count = len(first), len(workload)
    ranks = numpy.searchsorted(numpy.cumsum(POPULARITY)[:-1], dice.random((nodes, count), numpy.float32))
    slots = (workload.arrivals // FASHION_SECONDS).astype(numpy.int64)
    fashions = numpy.argsort(dice.random((nodes, int(slots.max()) + 1, MODELS)), axis=2).astype(numpy.uint8)
    when = slots.take((first[:, None] + numpy.arange(count)) % count)
    chosen: NDArray[numpy.uint8] = fashions[numpy.arange(nodes)[:, None], when, ranks]
    return chosen
