"""Our tensors keep every rule of the DLPack suite, on both sides; the suite itself notices who does not."""

from typing import Any

import tensormem as tm
from tensormem.testing.dlpack import (
    Consumer,
    ConsumerConformance,
    MadeProducer,
    Producer,
    ProducerConformance,
    examine,
    run_rule,
    table,
)
from tensormem.testing.dlpack_consumer import CONSUMER_RULES
from tensormem.testing.dlpack_libraries import subjects
from tensormem.testing.dlpack_producer import PRODUCER_RULES

OURS, TAKEN = subjects("tensormem")
assert OURS is not None and TAKEN is not None


class TestOurProducer(ProducerConformance):
    def subject(self) -> Producer:
        assert OURS is not None
        return OURS


class TestOurProducerOfViews(ProducerConformance):
    """The same values as a view with gaps, turned around twice."""

    def subject(self) -> Producer:
        def make() -> tm.Tensor:
            assert OURS is not None
            wide = tm.zeros((3, 4))
            view = wide[:, 1:3].T
            view.copy_(OURS.make())
            return view

        return Producer("views", make, lambda: make().as_readonly())


class TestOurConsumer(ConsumerConformance):
    def subject(self) -> Consumer:
        assert TAKEN is not None
        return TAKEN


class Careless:
    """A producer that breaks what it can: no versions, no flags, no device."""

    made = MadeProducer([2, 3], [0.0] * 6, legacy=True)

    def __dlpack__(self, **options: object) -> Any:
        return self.made.capsule(versioned=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_the_suite_finds_a_careless_producer_out() -> None:
    findings = [run_rule(rule, Producer("careless", Careless, Careless)) for rule in PRODUCER_RULES]
    assert [finding.outcome for finding in findings].count("broken") >= 10


def test_the_suite_finds_a_careless_consumer_out() -> None:
    held: list[Any] = []

    def take(producer: Any) -> Any:
        held.append(producer.__dlpack__())
        return held[-1]

    harmless = [rule for rule in CONSUMER_RULES if not rule.dangerous]
    findings = [run_rule(rule, Consumer("careless", take, lambda result: [])) for rule in harmless]
    assert [finding.outcome for finding in findings].count("broken") >= 6


def test_another_library_is_examined_for_information_and_survives_its_own_death() -> None:
    found = examine("numpy")
    assert len(found["producer"]) == len(PRODUCER_RULES) and len(found["consumer"]) == len(CONSUMER_RULES)
    assert {finding.outcome for finding in found["consumer"]} >= {"kept"}


def test_the_table_has_a_row_per_rule_and_no_broken_one_of_ours() -> None:
    text = table(["tensormem"])
    assert text.count("\n|") >= len(PRODUCER_RULES) + len(CONSUMER_RULES) and "**no**" not in text
