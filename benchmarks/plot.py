"""Owns: how figures look as a picture. One panel per metric; lines when something varies, bars when nothing does.

Colours are the Okabe-Ito set, which stays apart for colour-blind readers; every peer has its own marker as well.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from harness import Metric, Question, Row
from report import case_text, number

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def plot(question: Question, rows: Sequence[Row], file: Path) -> None:
    peers = sorted(dict.fromkeys(row.peer for row in rows), key=lambda peer: peer != question.ours)
    varies = rows[0].case is not None
    width = 6.4 * len(question.metrics) + (2.4 if varies else 1.2)
    figure, panels = plt.subplots(1, len(question.metrics), figsize=(width, 4.4), squeeze=False, layout="constrained")
    for panel, metric in zip(panels[0], question.metrics, strict=True):
        (_lines if varies else _bars)(panel, question, metric, peers, rows)
    if varies:
        # Beside the panels: wherever in them it stood, a line would run through it one day.
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside center right", frameon=False)
    figure.suptitle(question.title, fontsize=13)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _lines(panel: Axes, question: Question, metric: Metric, peers: list[str], rows: Sequence[Row]) -> None:
    for index, peer in enumerate(peers):
        points = [(row.case, row.values[metric.key]) for row in rows if row.peer == peer and metric.key in row.values]
        style = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}
        panel.plot(*zip(*points, strict=True), label=peer, linewidth=2.6 if peer == question.ours else 1.4, **style)
    cases = list(dict.fromkeys(row.case for row in rows))
    panel.set_xscale("log")
    panel.set_xticks(cases, [case_text(question, case).removesuffix(f" {question.case_label}") for case in cases])
    panel.minorticks_off()
    panel.set_xlabel("size" if question.case_label == "bytes" else question.case_label)
    if metric.logarithmic:
        panel.set_yscale("log")
        _plain_numbers(panel.yaxis, *panel.get_ylim())
    else:
        panel.set_ylim(bottom=0)
    panel.set_ylabel(metric.label)
    panel.grid(True, which="major", alpha=0.3)


def _bars(panel: Axes, question: Question, metric: Metric, peers: list[str], rows: Sequence[Row]) -> None:
    values = {row.peer: row.values[metric.key] for row in rows if metric.key in row.values}
    peers = [peer for peer in peers if peer in values]
    ours = {question.ours, *(pair[0] for pair in question.pairs)}
    colours = [COLOURS[0] if peer in ours else COLOURS[1] for peer in peers]
    bars = panel.barh(peers, [values[peer] for peer in peers], color=colours)
    panel.bar_label(bars, labels=[number(values[peer]) for peer in peers], padding=4)
    panel.margins(x=0.2)
    panel.invert_yaxis()
    if metric.logarithmic:
        panel.set_xscale("log")
        left = 10 ** (math.floor(math.log10(min(values.values()))) - 1)
        panel.set_xlim(left, (max(values.values()) / left) ** 1.3 * left)  # with room for the longest one's number
        _plain_numbers(panel.xaxis, *panel.get_xlim())
    panel.set_xlabel(metric.label)
    panel.grid(True, axis="x", alpha=0.3)


def _plain_numbers(axis: Axis, low: float, high: float) -> None:
    """1,000 instead of 10 to the third; a short axis gets ticks at 2 and 5 as well."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 300 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())
