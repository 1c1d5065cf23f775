"""Owns: the picture: requests turned away, memory for the same service, and what watching and counting cost.

Must not know: how the figures came about.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet.comparison import Comparison

GIB = 1 << 30
STATIC, ELASTIC, THIRD = "#0072B2", "#D55E00", "#009E73"
SHADES = {"chat": 1.0, "long prompts": 0.55}


def draw(found: Sequence[Comparison], file: Path) -> None:
    """Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(11.5, 7.2), layout="constrained")
    workloads = list(dict.fromkeys(each.workload for each in found))
    _refused(panels[0][0], found, workloads)
    _memory(panels[0][1], found, workloads)
    _ledger(panels[1][0], found, workloads)
    _metrics(panels[1][1], found)
    for panel in panels.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.title.set_fontsize(11)
    figure.suptitle(
        "Four models on every node: a part of the node for each, or one budget for all", x=0.01, ha="left", fontsize=14
    )
    figure.savefig(file, dpi=120)
    plt.close(figure)


def _bars(
    panel: Any, found: Sequence[Comparison], names: list[str], figures: dict[str, list[float]], text: str
) -> None:
    width = 0.8 / len(figures)
    for place, (label, heights) in enumerate(figures.items()):
        colour = STATIC if "static" in label else ELASTIC
        shade = next(shade for name, shade in SHADES.items() if name in label)
        at = [group + (place - (len(figures) - 1) / 2) * width for group in range(len(names))]
        bars = panel.bar(at, heights, width * 0.92, color=colour, alpha=shade, label=label)
        panel.bar_label(bars, labels=[text.format(height) for height in heights], fontsize=8, padding=2)
    panel.set_xticks(range(len(names)), names)
    panel.set_xlabel("nodes")
    panel.margins(y=0.36)
    panel.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")


def _nodes(found: Sequence[Comparison]) -> list[str]:
    return [f"{count:,}" for count in sorted({each.nodes for each in found})]


def _of(found: Sequence[Comparison], workload: str) -> list[Comparison]:
    return sorted((each for each in found if each.workload == workload), key=lambda each: each.nodes)


def _refused(panel: Any, found: Sequence[Comparison], workloads: list[str]) -> None:
    figures = {}
    for name in workloads:
        figures[f"{name}, static"] = [100 * (1 - each.static.admitted_share) for each in _of(found, name)]
        figures[f"{name}, elastic"] = [100 * (1 - each.elastic.admitted_share) for each in _of(found, name)]
    _bars(panel, found, _nodes(found), figures, "{:.2f}")
    panel.set_title("Requests turned away at the same memory (%)", loc="left")


def _memory(panel: Any, found: Sequence[Comparison], workloads: list[str]) -> None:
    figures = {
        f"{name}, elastic": [100 * each.saving.node_bytes / each.static.node_bytes for each in _of(found, name)]
        for name in workloads
    }
    _bars(panel, found, _nodes(found), figures, "{:.0f}")
    panel.axhline(100, color=STATIC, linewidth=2)
    panel.text(-0.4, 101.5, "static", color=STATIC, fontsize=9)
    panel.set_title("Memory of a node that lets in as many as static does (%)", loc="left")


def _ledger(panel: Any, found: Sequence[Comparison], workloads: list[str]) -> None:
    figures = {f"{name}, elastic": [1e6 * each.ledger_share for each in _of(found, name)] for name in workloads}
    _bars(panel, found, _nodes(found), figures, "{:.0f}")
    panel.set_title("The ledger: millionths of one core of a node", loc="left")


def _metrics(panel: Any, found: Sequence[Comparison]) -> None:
    rows = {each.nodes: each for each in found}
    nodes = sorted(rows)
    panel.plot(
        nodes,
        [rows[n].metrics_bytes_per_second / 1e6 for n in nodes],
        "o-",
        color=THIRD,
        label="MB a second, to the head",
    )
    panel.plot(
        nodes, [rows[n].table_seconds for n in nodes], "s--", color=STATIC, label="seconds to make the table of all"
    )
    panel.set(xscale="log", yscale="log", xlabel="nodes")
    panel.grid(alpha=0.25)
    panel.legend(frameon=False, fontsize=9)
    panel.set_title("Metrics of the whole cluster, every 5 s", loc="left")
