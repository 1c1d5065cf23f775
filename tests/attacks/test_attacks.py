"""A short run of every attack suite: a bounded number of cases. `make soak` tries other seeds, and many more."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from attacks.crew import Crew
from attacks.endurance import Figures, grown
from attacks.outcome import Outcome
from attacks.suite import load_suite, suite_names
from attacks.table import SoakReport, text_of, write_page

CASES = {
    "arguments": 1600,
    "unmade": 1600,
    "reentrancy": 600,
    "closing": 120,
    "files": 600,
    "messages": 1200,
    "kills": 60,
    "users": 20,
    "limits": 40,
}
SEED = int(os.environ.get("TENSORMEM_ATTACK_SEED", 1000))


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew(2)
    yield made
    made.close()


@pytest.mark.parametrize("name", suite_names())
def test_an_attack_finds_nothing(name: str, crew: Crew) -> None:
    batch = min(load_suite(name).batch, CASES[name] // 2)
    crew.run([(name, SEED + first, batch) for first in range(0, CASES[name], batch)], until=time.monotonic() + 60)
    tally = crew.tallies[name]
    if tally.could_not_run:
        pytest.skip(tally.could_not_run)
    assert tally.findings == [], text_of(SoakReport(crew.tallies, 0, SEED))
    assert tally.cases > 0


# --- The runner itself ---


def test_every_planted_mistake_is_found_and_the_rest_goes_on(crew: Crew) -> None:
    planted = Crew(2, hang_seconds=2)
    try:
        planted.run([("planted", 0, 20), ("planted", 20, 20)])
    finally:
        planted.close()
    tally = planted.tallies["planted"]
    found = {finding.seed: finding.outcome for finding in tally.findings}
    assert found == {3: Outcome.CRASH, 5: Outcome.HANG, 7: Outcome.WRONG, 9: Outcome.WRONG, 11: Outcome.LEAK}
    assert tally.cases == 40
    assert tally.counts[Outcome.REFUSED] == 1 and tally.counts[Outcome.UNCLEAR] == 1


def test_a_case_is_a_function_of_its_seed() -> None:
    assert Random("files:7").random() == Random("files:7").random() != Random("files:8").random()


def test_a_process_that_grows_is_told_from_one_that_does_not() -> None:
    steady = [Figures(float(n), 100 << 20, 20, 4) for n in range(30)]
    assert grown(steady) == {}
    assert list(grown([each._replace(descriptors=20 + n) for n, each in enumerate(steady)])) == ["descriptors"]
    assert list(grown([each._replace(resident_bytes=n << 23) for n, each in enumerate(steady)])) == ["resident_bytes"]
    assert list(grown([each._replace(threads=n) for n, each in enumerate(steady)])) == ["threads"]


def test_the_page_says_what_is_promised_and_what_came_of_it(crew: Crew, tmp_path: Path) -> None:
    crew.run([("messages", 0, 20)])
    report = SoakReport(crew.tallies, 1.0, 0, fuzzing=["fuzz_dlpack_check\t100\t1\tclean"])
    assert report.is_clean and "20 cases" in text_of(report)
    write_page(report, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert (
        "| messages | 20 |" in page and load_suite("messages").promise in page and "| fuzz_dlpack_check | 100 |" in page
    )
