"""Owns: asynchronous instruments for OpenTelemetry's API, named by its rules: dots, units apart from names,
attributes in a namespace. Needs the extra `opentelemetry`. Must not know: how values are found, or where they go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter_provider

from tensormem.reports.metrics import measuring
from tensormem.reports.metrics.families import FAMILIES, Family, Kind
from tensormem.reports.metrics.measuring import Sample

__all__ = ["instrument"]

_ONE_COLLECTION = 0.1  # seconds in which all instruments share one measurement
_ATTRIBUTES = {
    "space": "tensormem.space",
    "resource": "tensormem.resource.name",
    "pool": "tensormem.pool.name",
    "tenant": "tensormem.tenant.name",
    "budget": "tensormem.budget.name",
    "tag": "tensormem.tag",
}


def instrument(provider: MeterProvider | None = None, *, tags: int = 0) -> None:
    """Let a meter provider, the global one unless told, observe the memory of this process. Once a process is enough.

    >>> from opentelemetry.sdk.metrics import MeterProvider
    >>> provider = MeterProvider()
    >>> instrument(provider)
    >>> provider.shutdown()
    """
    meter = (provider or get_meter_provider()).get_meter("tensormem")
    measured = _Measured(measuring.Meter(tags=tags))
    for name, family in FAMILIES.items():
        _create(meter, family)(
            family.opentelemetry, [_observer(measured, name, family)], unit=family.unit, description=family.meaning
        )


class _Measured:
    """One measurement for all the instruments of one collection."""

    def __init__(self, meter: measuring.Meter) -> None:
        self._meter = meter
        self._lock = threading.Lock()
        self._made_at = float("-inf")
        self._samples: dict[str, list[Sample]] = {}

    def of(self, name: str) -> list[Sample]:
        with self._lock:
            if time.monotonic() - self._made_at > _ONE_COLLECTION:
                self._samples = {}
                for sample in self._meter.samples():
                    self._samples.setdefault(sample.name, []).append(sample)
                self._made_at = time.monotonic()
            return self._samples.get(name, [])


def _observer(measured: _Measured, name: str, family: Family) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(
                sample.value,
                {_ATTRIBUTES[label]: value for label, value in zip(family.labels, sample.labels, strict=True)},
            )
            for sample in measured.of(name)
        ]

    return observe


def _create(meter: Meter, family: Family) -> Callable[..., object]:
    if family.kind is Kind.COUNTER:
        return meter.create_observable_counter
    return meter.create_observable_up_down_counter if family.kind is Kind.SUM else meter.create_observable_gauge
