"""Owns: the serving loop: requests come, grow by the tokens they generate, and end; what is not admitted is counted.

Time is the trace's, in steps of a second; only the calls for memory are real, and timed.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kv_serving.fleets import Fleet, Lease
from kv_serving.models import MODELS
from kv_serving.trace import Request

TOKENS_PER_SECOND = 20
STEP_SECONDS = 1.0


@dataclass
class Outcome:
    """What became of one fleet."""

    name: str
    served: int = 0
    turned_away: int = 0
    cut_off: int = 0
    seconds: list[float] = field(default_factory=list)
    physical: list[list[int]] = field(default_factory=list)  # of each model
    needed: list[int] = field(default_factory=list)  # by the tokens that are there
    latencies_ns: list[int] = field(default_factory=list)

    @property
    def totals(self) -> list[int]:
        return [sum(parts) for parts in self.physical]

    @property
    def average_bytes(self) -> float:
        return statistics.fmean(self.totals)

    def latency_us(self, percent: int) -> float:
        ordered = sorted(self.latencies_ns)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] / 1000


@dataclass
class _Active:
    lease: Lease
    request: Request
    tokens: int


class Server:
    """Serves requests one step at a time from one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.outcome = Outcome(fleet.name)
        self._active: list[_Active] = []

    def serve(self, requests: Sequence[Request], models: Sequence[int], step: Callable[[float], None]) -> Outcome:
        """`step(part)` is told how much of the trace is done."""
        ended, now, place = requests[-1].arrival, 0.0, 0
        while place < len(requests) or self._active:
            self._go_on()
            while place < len(requests) and requests[place].arrival <= now:
                self._begin(requests[place], models[place])
                place += 1
            self._note(now)
            now += STEP_SECONDS
            step(min(1.0, now / (ended or 1.0)))
        return self.outcome

    def _begin(self, request: Request, model: int) -> None:
        start = time.perf_counter_ns()
        lease = self.fleet.admit(model, request.context)
        self.outcome.latencies_ns.append(time.perf_counter_ns() - start)
        if lease is None:
            self.outcome.turned_away += 1
        else:
            self._active.append(_Active(lease, request, request.context))

    def _go_on(self) -> None:
        going = []
        for active in self._active:
            if active.tokens == active.request.tokens:
                self.fleet.end(active.lease)
                self.outcome.served += 1
                continue
            tokens = min(active.request.tokens, active.tokens + int(TOKENS_PER_SECOND * STEP_SECONDS))
            start = time.perf_counter_ns()
            grown = self.fleet.grow(active.lease, tokens)
            self.outcome.latencies_ns.append(time.perf_counter_ns() - start)
            if grown:
                active.tokens = tokens
                going.append(active)
            else:
                self.fleet.end(active.lease)
                self.outcome.cut_off += 1
        self._active = going

    def _note(self, now: float) -> None:
        self.outcome.seconds.append(now)
        self.outcome.physical.append(self.fleet.physical_bytes())
        self.outcome.needed.append(sum(each.tokens * MODELS[each.lease.model].token_bytes for each in self._active))
