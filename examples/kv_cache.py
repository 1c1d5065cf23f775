"""Three models, one budget of memory, an hour of requests: their KV caches kept in three ways, with real memory.

Owns: the command line, the table, and the order of the runs. A part of it is in `make demo`; all of it by hand:

    python examples/kv_cache.py [--trace FILE] [--budget 1GiB] [--requests N] [--plot kv_cache.png]
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kv_serving.fleets import ElasticFleet, FixedBlocksFleet, Fleet, StaticFleet
from kv_serving.models import MODELS, share_out
from kv_serving.picture import draw
from kv_serving.serving import Outcome, Server
from kv_serving.trace import Request, find_trace, generate_trace, read_trace
from tensormem.units import format_size, parse_size

BAR_WIDTH = 30
COLUMNS = ("", "peak memory", "average", "served", "turned away", "cut off", "allocation p50", "p99")


def load(file: Path | None, most: int | None) -> list[Request]:
    found = file or find_trace()
    if found is not None:
        print(f"requests: {found.name}")
        return read_trace(found, most)
    print("requests: GENERATED, because TENSORMEM_DATA names no recorded ones; name a file with --trace")
    return generate_trace(most)


def progress(name: str) -> Callable[[float], None]:
    """Draws a bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda part: None

    def step(part: float) -> None:
        done = int(part * BAR_WIDTH)
        print(f"\r{name:13} [{'#' * done}{'.' * (BAR_WIDTH - done)}] {part:4.0%}", end="", file=sys.stderr, flush=True)
        if part >= 1.0:
            print("\r" + " " * (BAR_WIDTH + 24) + "\r", end="", file=sys.stderr, flush=True)

    return step


def run(requests: Sequence[Request], budget_bytes: int) -> list[Outcome]:
    models = share_out(requests)
    longest = max(request.tokens for request in requests)
    fleets: list[Callable[[], Fleet]] = [
        lambda: StaticFleet(budget_bytes, longest),
        lambda: FixedBlocksFleet(budget_bytes),
        lambda: ElasticFleet(budget_bytes),
    ]
    outcomes = []
    for make in fleets:
        fleet = make()
        try:
            outcomes.append(Server(fleet).serve(requests, models, progress(fleet.name)))
        finally:
            fleet.close()
    return outcomes


def row(outcome: Outcome) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (outcome.served, outcome.turned_away, outcome.cut_off))
    average = format_size(int(outcome.average_bytes) >> 20 << 20)
    latency = (f"{outcome.latency_us(percent):.1f} us" for percent in (50, 99))
    return (outcome.name, format_size(max(outcome.totals)), average, *counts, *latency)


def table(outcomes: Sequence[Outcome]) -> str:
    rows = [COLUMNS, *map(row, outcomes)]
    widths = [max(len(line[place]) for line in rows) for place in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(text.ljust(width) if place == 0 else text.rjust(width) for place, (text, width) in enumerate(cells))
        for cells in (list(zip(line, widths, strict=True)) for line in rows)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Three models, one budget, three ways to keep their KV caches.")
    parser.add_argument("--trace", type=Path, help="a CSV file with TIMESTAMP, ContextTokens, GeneratedTokens")
    parser.add_argument("--budget", default="1GiB", help="memory for all models (default: %(default)s)")
    parser.add_argument("--requests", type=int, help="only the first so many")
    parser.add_argument("--plot", type=Path, default=Path("kv_cache.png"), help="where the picture goes")
    given = parser.parse_args(arguments)
    if given.trace is not None and not given.trace.is_file():
        parser.error(f"there is no file {given.trace}")
    if given.requests is not None and given.requests < 1:
        parser.error("--requests is at least 1")
    budget_bytes = parse_size(given.budget)
    requests = load(given.trace, given.requests)
    blocks = ", ".join(f"{model.name} {format_size(model.block_bytes)}" for model in MODELS)
    print(f"{len(requests):,} requests, {format_size(budget_bytes)} for all; blocks of 16 tokens: {blocks}\n")
    outcomes = run(requests, budget_bytes)
    print(table(outcomes))
    try:
        draw(outcomes, budget_bytes, given.plot)
        print(f"\npicture: {given.plot}")
    except ImportError:
        print("\nno picture: matplotlib is not installed (pip install matplotlib)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
