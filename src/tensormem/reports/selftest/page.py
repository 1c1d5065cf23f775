"""Owns: the report as one HTML page that needs nothing else: facts, groups, calls, times.

Must not know: how the report is made.
"""

from __future__ import annotations

from html import escape

from tensormem.reports.selftest.outcome import GroupResult, Verdict
from tensormem.units import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensormem.reports.selftest.report import SelftestReport

__all__ = ["page"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --good: #1a7f37; --bad: #c62828; --dim: #777 }
@media (prefers-color-scheme: dark) { :root { --good: #57c46f; --bad: #ff7b72; --dim: #999 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
table { border-collapse: collapse; width: 100% } td, th { padding: .3rem .6rem; text-align: left; vertical-align: top }
tr { border-top: 1px solid var(--line) } th { font-weight: 600; white-space: nowrap; width: 1% }
td.number { text-align: right; font-variant-numeric: tabular-nums } td.where { overflow-wrap: anywhere }
thead th { color: var(--dim); width: auto } thead th.number { text-align: right }
details { border-top: 1px solid var(--line); padding: .4rem .6rem } summary { cursor: pointer }
summary .counts { color: var(--dim); float: right } ul { margin: .4rem 0; padding-left: 1.2rem }
pre { background: var(--soft); padding: .6rem; overflow-x: auto; font-size: 12px }
.verdict { font-weight: 600 } .passed { color: var(--good) } .failed, .hung, .crashed { color: var(--bad) }
.not-offered, .not-run { color: var(--dim) } .note { background: var(--soft); padding: .5rem .8rem; margin: 1rem 0 }
code { font-size: 13px } .calls code { display: inline-block; margin-right: 1rem }
"""


def page(report: SelftestReport) -> str:
    """The whole page."""
    title = f"tensormem selftest: {report.where}"
    parts = [_head(report), _facts(report), _groups(report), _times(report), _calls(report)]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _verdict(verdict: Verdict) -> str:
    return f'<span class="verdict {verdict.replace(" ", "-")}">{verdict}</span>'


def _head(report: SelftestReport) -> str:
    name = report.subject.get("device", {}).get("name", "")
    notes = []
    if report.refusal:
        notes.append(f"The device cannot be examined: {report.refusal}")
    if report.interrupted:
        notes.append("It was interrupted; the groups that are missing say so.")
    if report.simulated:
        notes.append("This is the simulated GPU: its times say nothing about a real one.")
    said = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    return (
        f"<h1>{escape(report.where)} {escape(name)}: {_verdict(report.verdict)}</h1>"
        f"<p>tensormem {escape(report.machine['tensormem'])}, {escape(report.started)}</p>{said}"
    )


def _rows(rows: Iterable[tuple[str, object]]) -> str:
    cells = (f'<tr><th>{escape(name)}</th><td class="where">{escape(str(value))}</td></tr>' for name, value in rows)
    return f"<table>{''.join(cells)}</table>"


def _facts(report: SelftestReport) -> str:
    rows: list[tuple[str, object]] = []
    device, driver = report.subject.get("device", {}), report.subject.get("driver", {})
    if device:
        rows.append(("device", f"{device['name']}, {format_size(device['total_bytes'])}"))
        facts = {name.replace("_", " "): value for name, value in device.items() if name != "simulated"}
        rows.append(("has", ", ".join(name for name, value in facts.items() if value is True) or "plain memory alone"))
        rows.append(("has not", ", ".join(name for name, value in facts.items() if value is False) or "-"))
    if driver:
        kernel = f"; kernel module {driver['kernel_module']}" if driver["kernel_module"] else ""
        rows += [("driver", f"{driver['vendor']} {driver['version_text']}{kernel}"), ("library", driver["library"])]
        rows += [("not taken", f"{library}: {why}") for library, why in driver["not_taken"]]
        rows.append(
            ("attributes", ", ".join(f"{name} {value}" for name, value in report.subject["attributes"].items()))
        )
        rows.append(("devices", ", ".join(report.subject["devices"])))
    machine = report.machine
    rows += [
        ("system", f"{machine['system']}, {machine['cores']} cores, Python {machine['python']}"),
        ("container", f"yes: {machine['container']}" if machine["container"] else "none seen"),
        ("device nodes", ", ".join(machine["device_nodes"]) or "none"),
        ("variables", ", ".join(f"{name}={value}" for name, value in machine["variables"].items()) or "none"),
    ]
    return f"<h2>Facts</h2>{_rows(rows)}"


def _groups(report: SelftestReport) -> str:
    return f"<h2>Checks</h2>{''.join(map(_group, report.groups))}" if report.groups else ""


def _group(group: GroupResult) -> str:
    counts = f"{group.count(Verdict.PASSED)} of {len(group.checks)} in {group.seconds:.1f} s" if group.checks else ""
    why = f": {escape(group.reason)}" if group.reason else ""
    checks = "".join(
        f"<li>{_verdict(check.verdict)} {escape(check.name)}{': ' + escape(check.why) if check.why else ''}</li>"
        for check in group.checks
    )
    output = f"<pre>{escape(group.output)}</pre>" if group.output else ""
    opened = " open" if group.verdict.is_trouble else ""
    return (
        f"<details{opened}><summary>{escape(group.title)}: {_verdict(group.verdict)}{why}"
        f'<span class="counts">{counts}</span></summary><ul>{checks}</ul>{output}</details>'
    )


def _times(report: SelftestReport) -> str:
    rows = "".join(
        f'<tr><td>{escape(each.name)}</td><td class="number">{each.microseconds:,.2f}</td>'
        f'<td class="number">{"" if each.bare_microseconds is None else f"{each.bare_microseconds:,.2f}"}</td></tr>'
        for group in report.groups
        for each in group.measurements
    )
    if not rows:
        return ""
    head = '<tr><th>what</th><th class="number">microseconds</th><th class="number">bare calls</th></tr>'
    return f"<h2>Times</h2><table><thead>{head}</thead>{rows}</table>"


def _calls(report: SelftestReport) -> str:
    calls = report.calls
    if not calls:
        return ""
    made = "".join(f"<code>{escape(name)} {count:,}</code> " for name, count in calls.items() if count)
    uncalled = ", ".join(report.uncalled)
    missed = f"<p>Not called: <code>{escape(uncalled)}</code></p>" if uncalled else ""
    count = len(calls) - len(report.uncalled)
    return (
        f"<h2>Functions of the driver: {count} of {len(calls)} called</h2>{missed}"
        f'<details><summary>How often each</summary><p class="calls">{made}</p></details>'
    )
