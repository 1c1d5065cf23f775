"""Owns: the groups of checks, in the order in which they run and are shown: what the others stand on comes first."""

from tensormem.reports.selftest.groups import (
    capture,
    conformance,
    dlpack,
    driver,
    elastic,
    external,
    managed,
    memory,
    pools,
    several_gpus,
    sharing,
    streams,
    timings,
    virtual_memory,
    waiting,
)

__all__ = ["GROUPS"]

GROUPS = (
    driver.GROUP,
    memory.GROUP,
    streams.GROUP,
    waiting.GROUP,
    pools.GROUP,
    managed.GROUP,
    virtual_memory.GROUP,
    elastic.GROUP,
    sharing.GROUP,
    several_gpus.GROUP,
    external.GROUP,
    capture.GROUP,
    dlpack.GROUP,
    timings.GROUP,
    conformance.GROUP,
)
