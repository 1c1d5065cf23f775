"""Owns: both ways side by side on one workload, and what the elastic one costs by the measured costs.

Must not know: how they are shown.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fleet.costs import PAGE, Costs
from fleet.outcome import NodeOutcomes, Outcome
from fleet.requests import Workload
from fleet.schedule import make_schedule
from fleet.simulation import MODELS, admitted_shares, simulate

SAMPLE_NODES = 60  # for the search of the smallest budget
CHECKED_NODES = 1_000  # on which that budget is checked
METRICS_SECONDS = 5.0


@dataclass(frozen=True)
class Comparison:
    """One workload on one number of nodes."""

    workload: str
    nodes: int
    static: Outcome
    elastic: Outcome
    saving: Outcome
    """The elastic way with the least memory that lets in as many as the static way."""
    costs: Costs

    @property
    def saved_share(self) -> float:
        """Of the memory of a node."""
        return 1 - self.saving.node_bytes / self.static.node_bytes

    @property
    def ledger_share(self) -> float:
        """The part of one core of a node that claims take, if every page were claimed by itself."""
        pages = self.elastic.admitted_bytes / PAGE / self.nodes
        return pages * self.costs.claim_ns / 1e9 / self.elastic.seconds

    @property
    def metrics_bytes_per_second(self) -> float:
        """What all workers send, over the network of the head."""
        return self.nodes * MODELS * self.costs.stats_bytes / METRICS_SECONDS

    @property
    def table_seconds(self) -> float:
        """How long `cluster_stats` works on the rows of all workers, after they have arrived."""
        return self.nodes * MODELS * self.costs.row_ns / 1e9

    def as_dict(self) -> dict[str, Any]:
        """Raw values."""
        derived = ("saved_share", "ledger_share", "metrics_bytes_per_second", "table_seconds")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


def compare(
    workload: Workload, sizes: list[int], costs: Costs, seed: int, say: Callable[[str], object]
) -> list[Comparison]:
    """The workload on clusters of all `sizes`. The nodes of a small cluster are the first of a large one: nodes share
    nothing but the network, so each is simulated once.
    """
    say(f"{workload.name}: the least memory that is as good")
    smallest = least_memory(workload, seed)
    seconds, most, limit = make_schedule(workload).period, max(sizes), workload.node_bytes

    def run(policy: str, limit: int, nodes: int) -> NodeOutcomes:
        say(f"{workload.name}: {nodes:,} nodes, {policy}, {limit / 2**30:.1f} GiB")
        return simulate(workload, policy, nodes, node_bytes=limit, seed=seed)

    fewer = min(most, CHECKED_NODES)
    static, elastic = run("static", limit, most), run("elastic", limit, most)
    saving = run("elastic", smallest, fewer)
    facts = len(workload), seconds
    return [
        Comparison(
            workload.name,
            nodes,
            static.cluster(nodes, *facts),
            elastic.cluster(nodes, *facts),
            saving.cluster(min(nodes, fewer), *facts),
            costs,
        )
        for nodes in sorted(sizes)
    ]


def least_memory(workload: Workload, seed: int) -> int:
    """The least memory of a node, in steps of 2 %, with which the elastic way lets in as many as the static way does
    with all of it: on a sample of nodes.
    """
    sample = simulate(workload, "static", SAMPLE_NODES, seed=seed)
    goal = sample.admitted.sum() / SAMPLE_NODES / len(workload)
    budgets = [workload.node_bytes * percent // 100 for percent in range(40, 101, 2)]
    shares = admitted_shares(workload, budgets, SAMPLE_NODES, seed)
    return next((budget for budget, share in zip(budgets, shares, strict=True) if share >= goal), workload.node_bytes)
