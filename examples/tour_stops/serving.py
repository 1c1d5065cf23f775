"""Owns: the stop where three models share one budget: the start of `kv_cache.py`, which runs through the whole hour."""

import kv_cache
from kv_serving.trace import find_trace, generate_trace, read_trace
from tour_stops.guide import Guide

TITLE = "An elastic KV cache: three models serve one budget of 512 MiB"
BUDGET_BYTES = 512 << 20
REQUESTS = 1500
SHOWN = 6  # columns that fit beside one another on any terminal


def show(guide: Guide) -> None:
    file = find_trace()
    requests = generate_trace(REQUESTS) if file is None else read_trace(file, REQUESTS)
    guide.say(f"{len(requests):,} requests, {'generated: there is no trace here' if file is None else file.name}")
    static, fixed, ours = kv_cache.run(requests, BUDGET_BYTES)
    guide.table(*kv_cache.COLUMNS[:SHOWN], rows=[kv_cache.row(outcome)[:SHOWN] for outcome in (static, fixed, ours)])
    guide.say("The whole hour, with a picture: python examples/kv_cache.py")
    guide.expect("packed, elastic blocks serve more requests than fixed ones", ours.served > fixed.served)
    guide.expect("and fixed blocks more than room for the longest request", fixed.served > static.served)
    guide.expect("with less memory on average", ours.average_bytes < fixed.average_bytes)
    guide.expect("and never more than the budget", max(ours.totals) <= BUDGET_BYTES)
