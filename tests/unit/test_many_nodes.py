"""The simulation of `examples/many_nodes.py`, small: what comes in goes out, nobody has more than there is, the same
seed gives the same, and a hand-made case comes out as by hand.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

from fleet.budgets import ElasticBudgets, StaticBudgets  # noqa: E402
from fleet.page import BEGINS, ENDS, text_of, write_page  # noqa: E402
from fleet.requests import Workload, chat, long_prompts  # noqa: E402
from fleet.router import route  # noqa: E402
from fleet.schedule import make_schedule  # noqa: E402
from fleet.simulation import MODELS, admitted_shares, simulate  # noqa: E402


@pytest.fixture(scope="module")
def workload() -> Workload:
    return chat(most=600)


@pytest.mark.parametrize("policy", ["static", "elastic"])
def test_bytes_in_are_bytes_out_and_no_node_has_more_than_there_is(workload: Workload, policy: str) -> None:
    limit = workload.node_bytes // 3
    found = simulate(workload, policy, 7, node_bytes=limit)
    assert (found.admitted_bytes == found.returned_bytes).all()
    assert (found.left_bytes == 0).all()
    assert (found.peak_bytes <= limit).all() and found.peak_bytes.min() > limit // 4
    assert (found.admitted < len(workload)).all(), "some are turned away, or nothing was tried"
    assert (found.average_bytes <= found.peak_bytes).all()


def test_with_enough_memory_everybody_is_let_in_and_with_none_nobody(workload: Workload) -> None:
    plenty = int(workload.nbytes.sum()) * MODELS
    assert (simulate(workload, "static", 3, node_bytes=plenty).admitted == len(workload)).all()
    assert simulate(workload, "elastic", 3, node_bytes=plenty).admitted_bytes[0] == workload.nbytes.sum()
    assert simulate(workload, "elastic", 3, node_bytes=0).admitted.sum() == 0


def test_the_same_seed_gives_the_same_and_a_small_cluster_is_the_first_part_of_a_large_one(workload: Workload) -> None:
    one, same, other = (simulate(workload, "elastic", 5, node_bytes=2 << 30, seed=seed) for seed in (1, 1, 2))
    assert (one.admitted == same.admitted).all() and (one.admitted != other.admitted).any()
    assert one.cluster(2, len(workload), 1.0).admitted == one.admitted[:2].sum()


def test_more_memory_never_lets_in_fewer_on_the_whole(workload: Workload) -> None:
    shares = admitted_shares(workload, [1 << 30, 2 << 30, 4 << 30, 16 << 30], 6, seed=0)
    assert shares == sorted(shares) and shares[-1] > shares[0]


def test_two_requests_that_overlap_are_let_in_when_there_is_room_for_both() -> None:
    gib = 1 << 30
    work = Workload(
        "by hand", numpy.array([0.0, 1.0, 20.0]), numpy.array([gib, gib, gib]), numpy.array([5.0, 5.0, 0.5]), 2 * gib
    )
    assert make_schedule(work).events == 6
    (found,) = simulate(work, "elastic", 1, node_bytes=8 * gib).admitted
    assert found == 3
    one_at_a_time = simulate(work, "elastic", 4, node_bytes=gib + 3 * gib // 4)
    assert set(one_at_a_time.admitted) <= {2, 3}, "a walk that begins between the two meets the second alone"
    assert one_at_a_time.admitted.min() == 2


def test_a_request_longer_than_its_trace_is_refused() -> None:
    with pytest.raises(ValueError, match="lasts"):
        make_schedule(Workload("long", numpy.array([0.0, 1.0]), numpy.array([1, 1]), numpy.array([0.5, 9.0]), 8))


def test_budgets_keep_what_others_are_guaranteed() -> None:
    limit, node = numpy.array([1600]), numpy.array([0])
    elastic, static = ElasticBudgets(4, limit), StaticBudgets(4, limit)
    assert elastic.fits(node, numpy.array([1300]))[0] and not elastic.fits(node, numpy.array([1301]))[0]
    assert static.fits(node, numpy.array([400]))[0] and not static.fits(node, numpy.array([401]))[0]
    elastic.add(node, numpy.array([1300]))
    assert elastic.fits(node + 1, numpy.array([100]))[0] and not elastic.fits(node + 1, numpy.array([101]))[0]
    assert elastic.is_valid()


def by_hand(*arrivals: float) -> Workload:
    """Requests of a GiB that each last five seconds, in the middle of a trace; the last one is alone."""
    gib, count = 1 << 30, len(arrivals) + 1
    times = numpy.array([*(50.0 + each for each in arrivals), 100.0])
    return Workload("by hand", times, numpy.full(count, gib), numpy.full(count, 5.0), 2 * gib)


def test_behind_a_router_who_finds_no_room_waits_for_it_and_gives_up_in_time() -> None:
    work, gib = by_hand(0.0, 1.0, 2.0), 1 << 30
    room_for_one = gib + 3 * gib // 4
    patient = route(work, "elastic", 1, node_bytes=room_for_one, patience=60.0)
    assert (patient.admitted, patient.requests) == (4, 4)
    assert patient.waited == 2 and patient.waiting_seconds == pytest.approx(4.0 + 8.0)
    hasty = route(work, "elastic", 1, node_bytes=room_for_one, patience=6.0)
    assert (hasty.admitted, hasty.waited) == (3, 1)
    assert route(work, "elastic", 1, node_bytes=gib // 2).admitted == 0


def test_a_router_sends_to_the_node_that_uses_least(workload: Workload) -> None:
    gib = 1 << 30
    alone, two = (route(by_hand(0.0, 0.5), "elastic", nodes, node_bytes=2 * gib, patience=1.0) for nodes in (1, 2))
    assert alone.refused_share > 0 and two.refused_share == 0
    one, ten = (route(workload, "static", nodes, node_bytes=workload.node_bytes // 2) for nodes in (1, 10))
    elastic = route(workload, "elastic", 10, node_bytes=workload.node_bytes // 2)
    assert elastic.refused_share <= ten.refused_share < one.refused_share


def test_the_page_says_what_its_figures_say(tmp_path: Path) -> None:
    pages = EXAMPLES.parent / "docs/explanation"
    figures = json.loads((pages / "scale.json").read_text())
    between = (pages / "scale.md").read_text().partition(BEGINS)[2].partition(ENDS)[0]
    assert between.strip() == text_of(figures)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGINS}\nold\n{ENDS}\nafter\n")
    write_page(page, figures)
    assert page.read_text() == f"before\n{BEGINS}\n{text_of(figures)}\n{ENDS}\nafter\n"


def test_both_traces_are_read_or_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORMEM_DATA", str(tmp_path))
    for read in (chat, long_prompts):
        made_up = read(most=200)
        assert made_up.generated and len(made_up) == 200
        assert (numpy.diff(made_up.arrivals) >= 0).all() and made_up.arrivals[0] == 0


def test_the_script_prints_its_table_and_writes_its_figures(tmp_path: Path) -> None:
    figures, picture = tmp_path / "figures.json", tmp_path / "nodes.png"
    command = [sys.executable, str(EXAMPLES / "many_nodes.py"), "--nodes", "3", "6", "--requests", "300"]
    command += ["--routed", "1", "3"]
    done = subprocess.run(
        [*command, "--json", str(figures), "--plot", str(picture)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    runs = json.loads(figures.read_text())["runs"]
    routed = json.loads(figures.read_text())["routed"]
    assert len(routed) == 2 * 2 * 2 * 2 and all(0 < each["admitted"] <= each["requests"] for each in routed)
    assert [(run["workload"], run["nodes"]) for run in runs] == [
        ("chat", 3),
        ("chat", 6),
        ("long prompts", 3),
        ("long prompts", 6),
    ]
    assert all(run["elastic"]["admitted"] >= run["static"]["admitted"] for run in runs)
    assert all(run["ledger_share"] > 0 and run["metrics_bytes_per_second"] > 0 for run in runs)
    assert picture.is_file() or "matplotlib is not installed" in done.stdout
