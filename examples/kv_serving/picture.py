"""Owns: the picture: memory over time, and what each way made of the same budget.

Must not know: how the figures came about.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from kv_serving.models import MODELS
from kv_serving.serving import Outcome

MIB = 1 << 20
OURS = "#D55E00"
OTHERS = ("#999999", "#0072B2")
PARTS = ("#F6C9A8", "#EE9B63", "#D55E00")
WINDOW = 15  # samples, one a second


def calm(samples: Sequence[int]) -> list[float]:
    """Averages in MiB: a line for each second would be a thicket."""
    return [statistics.fmean(samples[at : at + WINDOW]) / MIB for at in range(0, len(samples), WINDOW)]


def draw(outcomes: Sequence[Outcome], budget_bytes: int, file: Path) -> None:
    """Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ours = outcomes[-1]
    minutes = [second / 60 for second in ours.seconds[::WINDOW]]
    figure = plt.figure(figsize=(12, 6.2), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(2.6, 1))
    line = figure.add_subplot(grid[:, 0])
    parts = [calm([sample[place] for sample in ours.physical]) for place in range(len(MODELS))]
    line.stackplot(minutes, *parts, colors=PARTS, labels=[f"tensormem, {model.name} model" for model in MODELS])
    line.plot(minutes, calm(ours.needed), color="black", linewidth=1.2, label="what the tokens need")
    line.axhline(budget_bytes / MIB, color=OTHERS[1], linewidth=2, label="static and fixed blocks: all of it, always")
    line.set(
        xlabel="minutes", ylabel="physical memory (MiB)", xlim=(0, minutes[-1]), ylim=(0, budget_bytes / MIB * 1.22)
    )
    line.legend(loc="upper left", ncols=2, frameon=False, fontsize=9)
    line.set_title(f"Memory behind the caches of three models, averages of {WINDOW} s", loc="left", fontsize=11)

    names = [outcome.name for outcome in outcomes]
    colours = [*OTHERS, OURS]
    served = figure.add_subplot(grid[0, 1])
    lost = [outcome.turned_away + outcome.cut_off for outcome in outcomes]
    bars = served.barh(names, lost, color=colours)
    served.bar_label(bars, labels=[f"{count:,}" for count in lost], padding=4)
    served.set_title("Requests not served", loc="left", fontsize=11)
    average = figure.add_subplot(grid[1, 1])
    means = [outcome.average_bytes / MIB for outcome in outcomes]
    bars = average.barh(names, means, color=colours)
    average.bar_label(bars, labels=[f"{mean:,.0f} MiB" for mean in means], padding=4)
    average.set_title("Average physical memory", loc="left", fontsize=11)
    for panel in (served, average):
        panel.invert_yaxis()
        panel.margins(x=0.28)
        panel.set_xticks([])
        panel.spines[["top", "right", "bottom"]].set_visible(False)
        panel.tick_params(left=False)
    line.spines[["top", "right"]].set_visible(False)
    total = ours.served + ours.turned_away + ours.cut_off
    figure.suptitle(
        f"{total:,} requests in {budget_bytes / MIB:,.0f} MiB, kept in three ways", fontsize=14, x=0.01, ha="left"
    )
    figure.savefig(file, dpi=120)
    plt.close(figure)
