"""Owns: the DLPack conformance suite as others use it: two classes to subclass, and the table over known libraries.

    class TestMyProducer(ProducerConformance):
        def subject(self):
            return Producer("mine", lambda: MyTensor([[0, 1, 2], [3, 4, 5]]))

`python -m tensormem.testing.dlpack` prints the table; each library runs in a process of its own, which some rules bring
down in careless consumers. Must not know: how a rule is checked.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import pytest

from tensormem.testing.dlpack_consumer import CONSUMER_RULES
from tensormem.testing.dlpack_libraries import LIBRARIES, subjects
from tensormem.testing.dlpack_producer import PRODUCER_RULES
from tensormem.testing.dlpack_rules import Consumer, Finding, NotApplicable, Producer, Rule, run_rule
from tensormem.testing.dlpack_structs import MadeProducer

__all__ = [
    "Consumer",
    "ConsumerConformance",
    "Finding",
    "MadeProducer",
    "NotApplicable",
    "Producer",
    "ProducerConformance",
    "Rule",
    "examine",
    "run_rule",
    "table",
]


class ProducerConformance:
    """What every producer of DLPack tensors promises. Subclass it, and say in `subject` how to make one."""

    def subject(self) -> Producer:
        """The producer under test."""
        raise NotImplementedError("say how to make the producer")

    @pytest.mark.parametrize("rule", PRODUCER_RULES, ids=lambda rule: rule.sentence)
    def test_it_keeps_the_rule(self, rule: Rule) -> None:
        finding = run_rule(rule, self.subject())
        if finding.outcome == "not applicable":
            pytest.skip(finding.details)
        assert finding.outcome == "kept", finding.details


class ConsumerConformance:
    """What every consumer of DLPack tensors promises. Subclass it, and say in `subject` how it takes one."""

    def subject(self) -> Consumer:
        """The consumer under test."""
        raise NotImplementedError("say how the consumer takes a tensor")

    @pytest.mark.parametrize("rule", CONSUMER_RULES, ids=lambda rule: rule.sentence)
    def test_it_keeps_the_rule(self, rule: Rule) -> None:
        finding = run_rule(rule, self.subject())
        if finding.outcome == "not applicable":
            pytest.skip(finding.details)
        assert finding.outcome == "kept", finding.details


def examine(library: str) -> dict[str, list[Finding]]:
    """What a library does with every rule, by side. A rule that ends the process is a finding, and the rest go on.

    >>> [finding.outcome for finding in examine("tensormem")["producer"]].count("broken")
    0
    """
    return {side: _examine_side(library, side) for side in ("producer", "consumer")}


def _examine_side(library: str, side: str) -> list[Finding]:
    rules = PRODUCER_RULES if side == "producer" else CONSUMER_RULES
    found: list[Finding] = []
    while len(found) < len(rules):
        command = [sys.executable, "-m", "tensormem.testing.dlpack", "--run", library, side, str(len(found))]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
        found += [Finding(**json.loads(line)) for line in lines]
        if ended.returncode == 0:
            break
        if ended.returncode > 0:
            raise RuntimeError(f"{library} could not be examined: {ended.stderr[-500:]}")
        details = f"the process died of signal {-ended.returncode}"
        found.append(Finding(rules[len(found)].sentence, "broken", details))
    return found


def _run(library: str, side: str, first: int) -> None:
    """Check the rules from number `first` on, one line of JSON each, said before the next one starts."""
    producer, consumer = subjects(library)
    subject = producer if side == "producer" else consumer
    rules: Iterable[Rule] = (PRODUCER_RULES if side == "producer" else CONSUMER_RULES)[first:]
    for rule in rules:
        missing = Finding(rule.sentence, "not applicable", f"it has no {side}")
        print(json.dumps(asdict(missing if subject is None else run_rule(rule, subject))), flush=True)


_MARKS = {"kept": "yes", "broken": "**no**", "not applicable": "-"}


def table(libraries: Sequence[str] = tuple(LIBRARIES)) -> str:
    """The rules and who keeps them, as Markdown, with the details of every broken one below."""
    results = {library: examine(library) for library in libraries}
    parts = [_side_table(results, side) for side in ("producer", "consumer")]
    broken = [
        f"- {library}, as a {side}, {finding.sentence}: {finding.details}"
        for library, sides in results.items()
        for side, findings in sides.items()
        for finding in findings
        if finding.outcome == "broken"
    ]
    return "\n\n".join([*parts, "\n".join(broken)])


def _side_table(results: dict[str, dict[str, list[Finding]]], side: str) -> str:
    libraries = list(results)
    lines = [f"| a {side} ... | {' | '.join(libraries)} |", "|---" * (len(libraries) + 1) + "|"]
    for number, rule in enumerate(PRODUCER_RULES if side == "producer" else CONSUMER_RULES):
        marks = [_MARKS[results[library][side][number].outcome] for library in libraries]
        lines.append(f"| {rule.sentence} | {' | '.join(marks)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        _run(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        print(table(sys.argv[1:] or tuple(LIBRARIES)))
