"""Metrics: what Prometheus and OpenTelemetry are told is what the resources say, in the form that each wants."""

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import tensormem as tm
from tensormem import errors
from tensormem.reports.metrics import FAMILIES, Kind, Meter, exposition
from tensormem.reports.metrics.opentelemetry import instrument
from tensormem.reports.metrics.prometheus import MemoryCollector, register


class Mine(tm.mr.HostMemoryResource):
    """A class that no other test has resources of."""


class Theirs(tm.mr.HostMemoryResource):
    """Another."""


@pytest.fixture
def busy() -> Iterator[list[object]]:
    """A process in which something is in use."""
    mr = Mine()
    pool = tm.mr.PoolMemoryResource(tm.mr.LimitingResourceAdaptor(tm.mr.HostMemoryResource(), "64MiB"))
    guarded = tm.mr.PressureResourceAdaptor(pool, lambda level, used: None, warn=1, critical="1GiB")
    with tm.TenantPool("64MiB") as models, tm.BlockCache("1GiB", "256KiB") as cache:
        chat = models.register('chat "2"\n', "1GiB", guaranteed="2MiB", maximum="8MiB")
        yield [
            mr.allocate(1000, tag="weights"),
            guarded.allocate("1MiB"),
            chat.allocate("2MiB"),
            cache.allocate(3),
            mr.allocate(24),
        ]


def parsed(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.documentation and family.type in ("gauge", "counter")
        for sample in family.samples:
            found[sample.name, tuple(sample.labels.values())] = sample.value
    return found


def of(samples: list[Any], name: str, *labels: str) -> float:
    (value,) = [sample.value for sample in samples if sample.name == name and sample.labels == labels]
    return float(value)


def test_the_text_is_what_prometheus_itself_reads(busy: list[object]) -> None:
    values = parsed(exposition())
    assert values["tensormem_resource_used_bytes", ("Mine", "main")] == 1024
    assert values["tensormem_resource_blocks", ("Mine", "main")] == 2
    assert values["tensormem_resource_allocations_total", ("Mine", "main")] >= 2
    assert values["tensormem_resource_limit_bytes", ("LimitingResourceAdaptor", "main")] >= 64 * 2**20
    assert values["tensormem_tenant_used_bytes", ('chat "2"\n',)] == 2 * 2**20
    assert values["tensormem_pool_used_bytes", ("BlockCache", "main")] == 3 * 256 * 1024
    assert values["tensormem_pressure_level", ()] == 1
    assert values["tensormem_space_used_bytes", ("main",)] >= 1024 + 2**20


def test_the_collector_and_the_text_say_the_same(busy: list[object]) -> None:
    registry = CollectorRegistry()
    collector = register(registry)
    by_client, by_hand = parsed(generate_latest(registry)), parsed(exposition(Meter()))
    assert by_client == by_hand
    registry.unregister(collector)
    assert parsed(generate_latest(registry)) == {}


def test_a_second_registration_in_one_registry_is_refused() -> None:
    registry = CollectorRegistry()
    registry.register(MemoryCollector())
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(MemoryCollector())


def test_names_follow_the_rules_of_both_worlds() -> None:
    for family in FAMILIES.values():
        assert re.fullmatch(r"tensormem(_[a-z]+)+", family.prometheus) and "_bytes_bytes" not in family.prometheus
        assert re.fullmatch(r"tensormem(\.[a-z]+)+", family.opentelemetry)
        assert family.prometheus.endswith("_total") == (family.kind is Kind.COUNTER)
        assert ("_bytes" in family.prometheus) == (family.unit == "By")
        assert "bytes" not in family.opentelemetry and not family.opentelemetry.endswith("total")


def test_adaptors_are_not_counted_twice(busy: list[object]) -> None:
    names = {sample.labels[0] for sample in Meter().samples() if sample.name == "resource_used_bytes"}
    assert "PoolMemoryResource" in names and not any("Adaptor" in name for name in names)


def test_counters_do_not_fall_when_a_resource_goes() -> None:
    meter = Meter()
    mr = Theirs()
    block = mr.allocate(100)
    before = of(meter.samples(), "resource_allocated_bytes_total", "Theirs", "main")
    del block, mr
    gc.collect()
    again = Theirs()
    kept = again.allocate(50)
    assert of(meter.samples(), "resource_allocated_bytes_total", "Theirs", "main") == before + 50
    assert kept.nbytes == 50


def test_many_resources_of_a_class_are_one_series() -> None:
    many = [Theirs() for _ in range(300)]
    blocks = [mr.allocate(10) for mr in many]
    assert of(Meter().samples(), "resource_used_bytes", "Theirs", "main") == 3000
    assert len(blocks) == 300


def test_tags_are_counted_on_request_and_only_the_largest_apart(busy: list[object]) -> None:
    assert not [sample for sample in Meter().samples() if sample.name == "tag_used_bytes"]
    mr = Mine()
    blocks = [mr.allocate(2**26 + place, tag=f"tag{place}") for place in range(3)]
    tags = [sample for sample in Meter(tags=2).samples() if sample.name == "tag_used_bytes"]
    assert [sample.labels for sample in tags[:2]] == [("tag2", "main"), ("tag1", "main")]
    assert of(tags, "tag_used_bytes", "other", "main") >= 2**26 + 1024
    assert len(blocks) == 3
    with pytest.raises(errors.InvalidArgument):
        Meter(tags=-1)


def test_opentelemetry_collects_every_kind_with_its_unit(busy: list[object]) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    instrument(provider)
    data = reader.get_metrics_data()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    metrics = {metric.name: metric for metric in scope.metrics}
    assert scope.scope.name == "tensormem"
    usage = metrics["tensormem.resource.memory.usage"]
    points = {tuple(point.attributes.items()): point.value for point in usage.data.data_points}  # type: ignore[union-attr]
    assert usage.unit == "By" and usage.data.is_monotonic is False  # type: ignore[union-attr]
    assert points[("tensormem.resource.name", "Mine"), ("tensormem.space", "main")] == 1024
    allocations = metrics["tensormem.resource.allocations"]
    assert allocations.unit == "{allocation}" and allocations.data.is_monotonic is True  # type: ignore[union-attr]
    assert metrics["tensormem.pool.memory.fragmentation"].unit == "1"
    provider.shutdown()


def test_the_reference_page_lists_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
    for family in FAMILIES.values():
        names = f"| `{family.prometheus}` | `{family.opentelemetry}` | {family.kind} | {family.unit} |"
        assert f"{names} {', '.join(family.labels)} | {family.meaning} |" in page
