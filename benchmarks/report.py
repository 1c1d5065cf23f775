"""Writes what was measured: a section of RESULTS.md, the raw figures as JSON, and a plot.

Owns: the layout of all three. A section stands between markers named after its question, so that one question can be
measured again without touching the others. Must not know: how figures come about.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import machine
from harness import Metric, Question, Row

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
VERSION = 1
HEAD = """# Results

Written by `make bench`. Peers are measured in the same run as tensormem, in turns; a figure is the median of its
repeats. Compare figures within a table, not across machines. Raw figures are in `results/`.
"""


def write(question: Question, rows: Sequence[Row], folder: Path = HERE) -> None:
    from plot import plot

    noted = machine.facts(question.packages)
    results = folder / "results"
    results.mkdir(exist_ok=True)
    figures = [{"peer": row.peer, "case": row.case, **row.values} for row in rows]
    document = {"version": VERSION, "question": question.name, "machine": noted, "figures": figures}
    (results / f"{question.name}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    plot(question, rows, results / f"{question.name}.png")
    _replace_section(folder / "RESULTS.md", question.name, _section(question, rows, machine.sentence(noted)))


def _section(question: Question, rows: Sequence[Row], measured_on: str) -> str:
    tables = "\n\n".join(table(question, metric, rows) for metric in question.metrics)
    picture = f"![{question.title}](results/{question.name}.png)"
    return f"## {question.title}\n\n{question.asks}\n\n{tables}\n\n{picture}\n\nMeasured: {measured_on}.\n"


def table(question: Question, metric: Metric, rows: Sequence[Row]) -> str:
    """Peers down, cases across, and how tensormem stands against the best of the others."""
    cases = list(dict.fromkeys(row.case for row in rows))
    peers = list(dict.fromkeys(row.peer for row in rows))
    cells = {(row.peer, row.case): row.values[metric.key] for row in rows if metric.key in row.values}
    heads = [case_text(question, case) for case in cases]
    lines = [f"| {metric.label} | {' | '.join(heads)} |", f"|---|{'---:|' * len(cases)}"]
    for peer in peers:
        name = f"**{peer}**" if peer == question.ours else peer
        lines.append(f"| {name} | {' | '.join(number(cells.get((peer, case))) for case in cases)} |")
    for ours, others, text in _comparisons(question, peers):
        ratios = [_ratio(cells, others, ours, case) for case in cases]
        lines.append(f"| {text} | {' | '.join(ratios)} |")
    return "\n".join(lines)


def _comparisons(question: Question, peers: list[str]) -> list[tuple[str, list[str], str]]:
    if question.pairs:
        return [(ours, [peer], f"{ours} / {peer}") for ours, peer in question.pairs]
    return [(question.ours, peers, f"{question.ours} / best peer")]


def _ratio(cells: dict[tuple[str, int | None], float], peers: list[str], ours: str, case: int | None) -> str:
    others = [cells[peer, case] for peer in peers if peer != ours and (peer, case) in cells]
    if not others or (ours, case) not in cells or min(others) == 0:
        return "-"
    return f"{cells[ours, case] / min(others):.2f}x"


def case_text(question: Question, case: int | None) -> str:
    if case is None:
        return "measured"
    if question.case_label == "bytes":
        for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if case >= 1 << power and case % (1 << power) == 0:
                return f"{case >> power} {unit}"
        return f"{case} B"
    return f"{case:,} {question.case_label}"


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def _replace_section(file: Path, name: str, text: str) -> None:
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    section = f"{begin}\n{text}{end}\n"
    page = file.read_text(encoding="utf-8") if file.exists() else HEAD
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}\n", re.DOTALL)
    page = pattern.sub(lambda _: section, page) if pattern.search(page) else f"{page}\n{section}"
    file.write_text(page, encoding="utf-8")
