"""Owns: the picture of replays: what each stack held over the events and what was live, as one SVG.

Must not know: how a replay runs.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tensormem.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensormem.trace import ReplayReport

__all__ = ["replay_svg"]

_WIDTH, _HEIGHT = 960, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 24, 60
_COLUMNS, _ROW = 2, 16  # of the legend
# Told apart also by those who do not tell red from green.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def replay_svg(reports: Sequence[ReplayReport], capacity: int | None = None) -> str:
    """One line per stack for what it held, a grey surface for what was live, and a dashed line for the capacity.

    >>> from tensormem.trace import Lifetime, replay
    >>> svg = replay_svg([replay([Lifetime("a", 0, 2, 4096)], "pool")], capacity=8192)
    >>> svg.startswith("<svg") and "pool" in svg and "capacity" in svg
    True
    """
    events = max((report.event_count for report in reports), default=1) or 1
    top = max([report.peak_reserved for report in reports] + [report.peak_live for report in reports] + [1])
    if capacity is not None and capacity <= 2 * top:
        top = max(top, capacity)
    plot = _Plot(events, top * 1.04)
    # All of a space replayed the same blocks; who came furthest tells most of it.
    furthest: dict[str, ReplayReport] = {}
    for report in reports:
        if report.space not in furthest or report.events_done > furthest[report.space].events_done:
            furthest[report.space] = report
    parts = [_grid(plot), *(_live(plot, report) for report in furthest.values())]
    if capacity is not None and capacity <= plot.top:
        parts.append(_capacity(plot, capacity))
    for number, report in enumerate(reports):
        parts.append(_line(plot, report, number))
    height = _HEIGHT + _ROW * max(0, (len(reports) - 1) // _COLUMNS - 1)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    )
    return "\n".join([head, *parts, "</svg>\n"])


class _Plot:
    """Where an event and a number of bytes are in the picture."""

    def __init__(self, events: int, top: float) -> None:
        self.events, self.top = events, top

    def x(self, event: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * event / self.events, 1)

    def y(self, nbytes: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * nbytes / self.top, 1)


def _grid(plot: _Plot) -> str:
    parts = []
    for quarter in range(5):
        nbytes = plot.top * quarter / 4
        y = plot.y(nbytes)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#dddddd"/>')
        label = escape(format_size(round(nbytes)))
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end" fill="#444444">{label}</text>')
    for quarter in range(5):
        event = plot.events * quarter // 4
        x = plot.x(event)
        parts.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle" fill="#444444">{event:,}</text>')
    return "\n".join(parts)


def _live(plot: _Plot, report: ReplayReport) -> str:
    points = [f"{plot.x(sample.event)},{plot.y(sample.live_bytes)}" for sample in report.samples]
    if not points:
        return ""
    where = f" in {escape(report.space)}" if report.space else ""
    last = plot.x(report.samples[-1].event)
    outline = " ".join([f"{_LEFT},{plot.y(0)}", *points, f"{last},{plot.y(0)}"])
    return f'<polygon points="{outline}" fill="#cccccc" fill-opacity="0.6"><title>live{where}</title></polygon>'


def _capacity(plot: _Plot, capacity: int) -> str:
    y = plot.y(capacity)
    line = f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#aa0000" stroke-dasharray="6 4"/>'
    label = f"capacity {escape(format_size(capacity))}"
    return f'{line}<text x="{_WIDTH - _RIGHT - 4}" y="{y - 5}" text-anchor="end" fill="#aa0000">{label}</text>'


def _line(plot: _Plot, report: ReplayReport, number: int) -> str:
    color = _COLORS[number % len(_COLORS)]
    points = " ".join(f"{plot.x(sample.event)},{plot.y(sample.reserved_bytes)}" for sample in report.samples)
    x, y = _LEFT + number % _COLUMNS * 430, _HEIGHT - 24 + number // _COLUMNS * _ROW
    verdict = "" if report.fits else " (does not fit)"
    where = f" in {report.space}" if report.space else ""
    label = escape(f"{report.stack}{where}{verdict}")
    end = ""
    if report.failure is not None and report.samples:
        last = report.samples[-1]
        end = f'<circle cx="{plot.x(last.event)}" cy="{plot.y(last.reserved_bytes)}" r="4" fill="{color}"/>'
    return (
        f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.6"/>{end}'
        f'<rect x="{x}" y="{y - 9}" width="12" height="4" fill="{color}"/><text x="{x + 18}" y="{y}">{label}</text>'
    )
