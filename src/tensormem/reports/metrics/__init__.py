"""Owns: the memory of this process as metrics for monitors: what is measured, and how monitors get it.

`exposition()` needs nothing; `prometheus` and `opentelemetry` need the extras of their names and are imported by name.
Must not know: servers. Whoever has one, serves what is here.
"""

from tensormem.public_functions import explain_misspellings
from tensormem.reports.metrics.exposition import exposition
from tensormem.reports.metrics.families import FAMILIES, Family, Kind
from tensormem.reports.metrics.measuring import Meter, Sample

__all__ = ["FAMILIES", "Family", "Kind", "Meter", "Sample", "exposition"]

explain_misspellings(globals())
