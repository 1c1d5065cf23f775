"""Owns: what the page about scale says in figures: written from them, between two marks, and never by hand.

Must not know: how anything is simulated.
"""

import textwrap
from pathlib import Path
from typing import Any

BEGINS, ENDS = "<!-- figures: python examples/many_nodes.py --page -->", "<!-- end of figures -->"


def write_page(path: Path, figures: dict[str, Any]) -> None:
    """Put the figures into a page."""
    before, _, rest = path.read_text().partition(BEGINS)
    _, _, after = rest.partition(ENDS)
    path.write_text(f"{before}{BEGINS}\n{text_of(figures)}\n{ENDS}{after}")


def text_of(figures: dict[str, Any]) -> str:
    """All of it, as it stands between the marks."""
    runs = figures["runs"]
    names = list(dict.fromkeys(run["workload"] for run in runs))
    largest = {name: max((run for run in runs if run["workload"] == name), key=_nodes) for name in names}
    return "\n\n".join([_without_router(largest), _routed(figures["routed"], names), _watching(largest)])


def _nodes(run: dict[str, Any]) -> int:
    return int(run["nodes"])


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120)


def _refused(outcome: dict[str, Any]) -> str:
    return _percent(1 - outcome["admitted"] / outcome["requests"])


def _without_router(largest: dict[str, dict[str, Any]]) -> str:
    lines = [
        "Each node for itself, turned away at once:",
        "",
        "| requests | nodes | memory of a node | static parts | one elastic budget | as good with |",
        "|---|---|---|---|---|---|",
    ]
    for name, run in largest.items():
        memory, kept = run["static"]["node_bytes"] / 2**30, 1 - run["saved_share"]
        cells = (_refused(run["static"]), _refused(run["elastic"]), f"{100 * kept:.0f} % of it")
        lines.append(f"| {name} | {run['nodes']:,} | {memory:.0f} GiB | {' | '.join(cells)} |")
    return "\n".join(lines)


def _routed(routed: list[dict[str, Any]], names: list[str]) -> str:
    lines = [
        _wrapped(
            "Behind a router that sends each request to the node that uses least, where it waits up to "
            f"{routed[0]['patience']:.0f} s; turned away, and how many of those let in had to wait:"
        ),
        "",
        "| requests | nodes | memory | static parts | one elastic budget |",
        "|---|---|---|---|---|",
    ]
    for name in names:
        for nodes, percent in dict.fromkeys((each["nodes"], each["percent"]) for each in routed):
            found = {
                each["policy"]: each
                for each in routed
                if (each["workload"], each["nodes"], each["percent"]) == (name, nodes, percent)
            }
            cells = [f"{_refused(each)}, {_percent(each['waited'] / max(each['admitted'], 1))} waited"
                     for each in (found["static"], found["elastic"])]  # fmt: skip
            lines.append(f"| {name} | {nodes} | {percent} % | {' | '.join(cells)} |")
    return "\n".join(lines)


def _watching(largest: dict[str, dict[str, Any]]) -> str:
    run = next(iter(largest.values()))
    scale = 10_000 / run["nodes"]
    sent, table = run["metrics_bytes_per_second"] * scale / 1e6, run["table_seconds"] * scale
    ledger = max(each["ledger_share"] for each in largest.values())
    return _wrapped(
        f"At 10,000 nodes and four workers on each, statistics every five seconds are {sent:.1f} MB a second to the "
        f"head, and taking up their 40,000 rows takes it {table:.1f} s, before they are printed. The ledger takes "
        f"{100 * ledger:.2f} % of one core, if every page were claimed alone."
    )
