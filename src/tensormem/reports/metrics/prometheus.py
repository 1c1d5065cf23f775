"""Owns: a collector for `prometheus_client`. Needs the extra `prometheus`. Must not know: how values are found."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tensormem.reports.metrics.families import FAMILIES, Family, Kind
from tensormem.reports.metrics.measuring import Meter

__all__ = ["MemoryCollector", "register"]


class MemoryCollector(Collector):  # type: ignore[misc]  # typed in part
    """The memory of this process for `prometheus_client`, measured when it is scraped.

    >>> import tensormem as tm
    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> block = tm.mr.HostMemoryResource().allocate(1000)
    >>> registry = CollectorRegistry()
    >>> registry.register(MemoryCollector())
    >>> b"tensormem_space_used_bytes" in generate_latest(registry)
    True
    """

    def __init__(self, *, tags: int = 0) -> None:
        self._meter = Meter(tags=tags)

    def collect(self) -> Iterable[Metric]:
        """Every metric with its values of this moment."""
        metrics = self._empty()
        for sample in self._meter.samples():
            metrics[sample.name].add_metric(list(sample.labels), sample.value)
        return [metric for metric in metrics.values() if metric.samples]

    def describe(self) -> Iterable[Metric]:
        """What there is, without measuring it: called when it is registered."""
        return self._empty().values()

    def _empty(self) -> dict[str, CounterMetricFamily | GaugeMetricFamily]:
        return {name: _metric(family) for name, family in FAMILIES.items()}


def register(registry: CollectorRegistry | None = None, *, tags: int = 0) -> MemoryCollector:
    """Add the memory of this process to a registry, the default one unless told; gives the collector, so that it can be
    taken out again.

    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> registry.unregister(register(registry))
    """
    collector = MemoryCollector(tags=tags)
    (REGISTRY if registry is None else registry).register(collector)
    return collector


def _metric(family: Family) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    return kind(family.prometheus, family.meaning, labels=family.labels)
