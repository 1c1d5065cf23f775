"""Owns: Prometheus's text format, written without any package. Must not know: who serves it."""

from __future__ import annotations

from collections import defaultdict

from tensormem.reports.metrics.families import FAMILIES, Kind
from tensormem.reports.metrics.measuring import Meter, Sample

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What to say in the header of an HTTP answer."""

_process: dict[str, Meter] = {}  # counters must not fall between two calls


def exposition(meter: Meter | None = None) -> bytes:
    """All metrics of this process in Prometheus's text format, for an HTTP answer of type `CONTENT_TYPE`.

    >>> import tensormem as tm
    >>> block = tm.mr.HostMemoryResource().allocate(1000)
    >>> print(exposition().decode().splitlines()[1])
    # TYPE tensormem_space_used_bytes gauge
    """
    chosen = meter or _process.get("meter") or _process.setdefault("meter", Meter())
    values: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in chosen.samples():
        values[sample.name].append(sample)
    lines = []
    for name, family in FAMILIES.items():
        if name in values:
            kind = "counter" if family.kind is Kind.COUNTER else "gauge"
            lines += [f"# HELP {family.prometheus} {family.meaning}", f"# TYPE {family.prometheus} {kind}"]
            lines += [_line(family.prometheus, family.labels, sample) for sample in values[name]]
    return "".join(f"{line}\n" for line in lines).encode()


def _line(name: str, labels: tuple[str, ...], sample: Sample) -> str:
    pairs = ",".join(f'{label}="{_escape(value)}"' for label, value in zip(labels, sample.labels, strict=True))
    return f"{name}{{{pairs}}} {sample.value!r}" if pairs else f"{name} {sample.value!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
