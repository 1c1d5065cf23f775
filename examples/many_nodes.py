"""Ten to ten thousand nodes, an hour of requests on each: static parts of a node's memory against one elastic budget.

Owns: the command line and the table. A simulation, event by event, with costs that were measured on one machine; see
docs/explanation/scale.md for what it assumes and what it leaves out.

    python examples/many_nodes.py [--nodes 10 100 1000 10000] [--seed 0] [--plot many_nodes.png] [--json FILE]
        [--routed 1 10] [--page docs/explanation/scale.md]
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fleet.comparison import Comparison, compare
from fleet.costs import load
from fleet.page import write_page
from fleet.picture import draw
from fleet.requests import Workload, chat, long_prompts
from fleet.router import PATIENCE_SECONDS, route

ROUTED = ("behind a router", "nodes", "memory", "policy", "turned away", "waited")
COLUMNS = ("requests", "nodes", "memory", "static", "elastic", "as good with", "saved", "ledger", "metrics", "table")


def row(each: Comparison) -> tuple[str, ...]:
    return (
        each.workload,
        f"{each.nodes:,}",
        f"{each.static.node_bytes / 2**30:.0f} GiB",
        f"{each.static.admitted_share:.2%}",
        f"{each.elastic.admitted_share:.2%}",
        f"{each.saving.node_bytes / 2**30:.1f} GiB",
        f"{each.saved_share:.0%}",
        f"{each.ledger_share * 1e6:.0f} ppm",
        f"{each.metrics_bytes_per_second / 1e3:,.1f} kB/s",
        f"{each.table_seconds * 1e3:,.1f} ms",
    )


def through_a_router(workload: Workload, sizes: Sequence[int], seed: int) -> Iterator[dict[str, Any]]:
    """Both ways, with all of the memory and with 70 % of it."""
    for nodes in sizes:
        for percent in (100, 70):
            for policy in ("static", "elastic"):
                say(f"{workload.name}: {nodes} nodes behind a router, {policy}, {percent} %")
                found = route(workload, policy, nodes, node_bytes=workload.node_bytes * percent // 100, seed=seed)
                yield {**asdict(found), "percent": percent, "patience": PATIENCE_SECONDS}


def routed_row(each: dict[str, Any]) -> tuple[str, ...]:
    turned_away = 1 - each["admitted"] / each["requests"]
    figures = (
        f"{each['nodes']:,}",
        f"{each['percent']} %",
        each["policy"],
        f"{turned_away:.2%}",
        f"{each['waited']:,}",
    )
    return each["workload"], *figures


def table(found: Sequence[Comparison]) -> str:
    return aligned([COLUMNS, *map(row, found)])


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(line[place]) for line in rows) for place in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in rows)


def say(text: str) -> None:
    """What is being done, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{text:70}\r", end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Static and elastic budgets on ten to ten thousand nodes, simulated.")
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 1_000, 10_000], help="sizes of clusters")
    parser.add_argument("--requests", type=int, help="only the first so many of each trace")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, default=Path("many_nodes.png"), help="where the picture goes")
    parser.add_argument("--json", type=Path, help="where all figures go")
    parser.add_argument("--routed", type=int, nargs="*", default=[1, 10], help="sizes of clusters behind a router")
    parser.add_argument("--page", type=Path, help="a page whose figures are to be these")
    given = parser.parse_args(arguments)
    if min(given.nodes) < 1 or (given.requests is not None and given.requests < 100):
        parser.error("a cluster has at least one node, and a trace at least 100 requests")
    begun, costs, found, routed = time.monotonic(), load(), [], []
    print(f"costs: {costs.source}; a claim {costs.claim_ns:,.0f} ns, set-up of a worker {costs.setup_ns / 1e6:.1f} ms")
    for workload in (chat(most=given.requests), long_prompts(most=given.requests)):
        if workload.generated:
            print(f"{workload.name}: GENERATED requests, because TENSORMEM_DATA names no recorded ones")
        found += compare(workload, given.nodes, costs, given.seed, say)
        routed += list(through_a_router(workload, given.routed, given.seed))
    say("")
    print(table(found))
    print("\n" + aligned([ROUTED, *map(routed_row, routed)]))
    print(f"\nsimulated in {time.monotonic() - begun:.0f} s")
    figures = {"version": 1, "runs": [each.as_dict() for each in found], "routed": routed}
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    if given.page is not None:
        write_page(given.page, figures)
    try:
        draw(found, given.plot)
        print(f"picture: {given.plot}")
    except ImportError:
        print("no picture: matplotlib is not installed (pip install matplotlib)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
