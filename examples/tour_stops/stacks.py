"""Owns: the stop where resources are stacked: a pool, a budget, statistics, and a guard that finds a byte too many."""

import ctypes
import logging

import tensormem as tm
from tour_stops.guide import Guide

TITLE = "Resources, stacked: a pool under a budget, and a guard that finds one byte too many"
LIMIT = 8 * 2**20


def show(guide: Guide) -> None:
    show_a_budget(guide)
    show_a_guard(guide)


def show_a_budget(guide: Guide) -> None:
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), LIMIT)
    stack = tm.mr.StatisticsResourceAdaptor(tm.mr.LimitingResourceAdaptor(pool, LIMIT))
    blocks = [stack.allocate("1MiB", tag=f"layer {number}") for number in range(8)]
    guide.say(str(stack))
    try:
        stack.allocate(1)
        refused = None
    except tm.errors.OutOfBudget as error:
        refused = error
        guide.say(f"one byte more: {error}")
    guide.expect("the budget is exact to the byte", refused is not None and refused.remaining == 0)
    for block in blocks:
        stack.deallocate(block)
    taken = pool.pool_size
    guide.expect("everything coalesced, and trim gave it back", pool.fragmentation == 0.0 and pool.trim() == taken)


def show_a_guard(guide: Guide) -> None:
    logging.getLogger("tensormem").addHandler(logging.NullHandler())  # the report is shown here instead
    guard = tm.mr.DebugGuardResourceAdaptor(tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource()))
    row = guard.allocate(1000, tag="row")
    ctypes.memset(row.ptr, 0, 1001)
    try:
        guard.deallocate(row)
        found = None
    except tm.errors.OutOfBounds as error:
        found = error
        guide.say("\n".join(error.__notes__))
    guide.expect("the byte behind the block was noticed", found is not None and found.offset == 1000)
