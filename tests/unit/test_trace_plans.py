"""tensormem.trace.plan: as low as trying everything, checked, the same each time; and its file, read strictly."""

import io
import itertools
import json
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.workloads import CAPACITY, cases
from tensormem import errors
from tensormem.trace import Lifetime, Plan, PlanProgress, load_plan, peak_load, plan, read_lifetimes, save_plan
from tensormem.trace.plan_file import plan_from_json, plan_to_json


@st.composite
def small_instances(draw: st.DrawFn, most: int = 6) -> list[Lifetime]:
    count = draw(st.integers(0, most))
    made = []
    for number in range(count):
        lower = draw(st.integers(0, 6))
        made.append(Lifetime(f"b{number}", lower, lower + draw(st.integers(1, 5)), draw(st.integers(1, 6))))
    return made


def lowest_by_trying_everything(lifetimes: list[Lifetime]) -> int:
    """Every order, each block just above those before it that it meets: one of these is the lowest there is."""
    lowest = sum(each.size for each in lifetimes)
    for order in itertools.permutations(lifetimes):
        tops: list[tuple[Lifetime, int]] = []
        for block in order:
            offset = max((top for other, top in tops if block.overlaps(other)), default=0)
            tops.append((block, offset + block.size))
        lowest = min(lowest, max((top for _, top in tops), default=0))
    return lowest


def collisions(made: Plan) -> list[tuple[str, str]]:
    placed = list(zip(made.lifetimes, made.offsets, strict=True))
    return [
        (a.id, b.id)
        for (a, at), (b, other) in itertools.combinations(placed, 2)
        if a.overlaps(b) and at < other + b.size and other < at + a.size
    ]


@settings(deadline=None, max_examples=60)
@given(small_instances())
def test_a_plan_is_as_low_as_trying_everything_and_says_so(lifetimes: list[Lifetime]) -> None:
    made = plan(lifetimes, time_limit=100)
    assert made.height == lowest_by_trying_everything(lifetimes)
    assert made.proven_optimal and made.bound == made.height
    assert collisions(made) == []


def test_where_the_load_cannot_be_reached_the_plan_is_proven_one_above() -> None:
    rows = [(1, 4, 3), (3, 8, 1), (6, 10, 2), (4, 8, 2), (0, 2, 2), (3, 5, 1), (8, 9, 3)]
    lifetimes = [Lifetime(str(number), *row) for number, row in enumerate(rows)]
    made = plan(lifetimes, time_limit=100)
    assert (peak_load(lifetimes), made.height, made.proven_optimal) == (5, 6, True)


@settings(deadline=None)
@given(small_instances(most=30), st.sampled_from([1, 2, 16, 256]))
def test_offsets_are_aligned_and_nothing_collides(lifetimes: list[Lifetime], alignment: int) -> None:
    made = plan(lifetimes, time_limit=0.05, alignment=alignment)
    assert all(offset % alignment == 0 for offset in made.offsets)
    assert collisions(made) == [] and made.height >= peak_load(lifetimes)


@settings(deadline=None)
@given(small_instances(), st.data())
def test_a_plan_with_blocks_that_collide_cannot_be_made(lifetimes: list[Lifetime], data: st.DataObject) -> None:
    offsets = tuple(data.draw(st.integers(0, 12)) for _ in lifetimes)
    height = max((offset + each.size for offset, each in zip(offsets, lifetimes, strict=True)), default=0)
    try:
        made = Plan(tuple(lifetimes), offsets, height, 0)
    except errors.InvalidPlan:
        placed = list(zip(lifetimes, offsets, strict=True))
        assert any(
            a.overlaps(b) and at < other + b.size and other < at + a.size
            for (a, at), (b, other) in itertools.combinations(placed, 2)
        )
    else:
        assert collisions(made) == []


def test_a_block_outside_the_height_or_off_its_alignment_is_refused() -> None:
    block = (Lifetime("a", 0, 2, 8),)
    for offsets, height, alignment in (((1,), 8, 1), ((0,), 7, 1), ((-1,), 8, 1), ((4,), 16, 8), ((), 8, 1)):
        with pytest.raises(errors.InvalidPlan):
            Plan(block, offsets, height, 8, alignment=alignment)


@pytest.mark.parametrize("workload", cases("minimalloc/*.csv"), indirect=True)
def test_a_hard_instance_fits_its_capacity(workload: Path) -> None:
    made = plan(read_lifetimes(workload), capacity=CAPACITY, time_limit=200)
    assert made.fits(CAPACITY) and collisions(made) == []


def test_many_blocks_are_planned_near_the_bound() -> None:
    lifetimes = [Lifetime(str(n), n, n + 1 + n * 7919 % 97, 256 * (1 + n * 104729 % 64)) for n in range(20_000)]
    made = plan(lifetimes, time_limit=0)
    assert made.bound == peak_load(lifetimes) and made.over_bound < 1.5


def test_the_same_seed_gives_the_same_plan() -> None:
    lifetimes = [Lifetime(str(n), n * 31 % 40, n * 31 % 40 + 1 + n * 17 % 23, 1 + n * 13 % 29) for n in range(60)]
    first, second = (plan(lifetimes, capacity=2 * peak_load(lifetimes), time_limit=100, seed=5) for _ in range(2))
    assert first.offsets == second.offsets


def hard() -> list[Lifetime]:
    """One that keeps the search busy for longer than any test waits: sizes without a common measure."""
    return [Lifetime(str(n), n * 37 % 90, n * 37 % 90 + 2 + n * 7 % 31, 10_007 + n * 7919 % 65_521) for n in range(240)]


def test_a_progress_function_that_says_false_ends_it_with_a_plan() -> None:
    heard: list[PlanProgress] = []

    def stop_at_once(progress: PlanProgress) -> bool:
        heard.append(progress)
        return False

    made = plan(hard(), time_limit=1000, progress=stop_at_once)
    assert len(heard) == 1 and made.height >= made.bound and made.seconds < 1000


def test_what_a_progress_function_raises_comes_out() -> None:
    def fail(progress: PlanProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan(hard(), time_limit=1000, progress=fail)


def test_ctrl_c_ends_it() -> None:
    def press(progress: PlanProgress) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        plan(hard(), time_limit=1000, progress=press)


def test_wrong_arguments_are_refused() -> None:
    block = [Lifetime("a", 0, 2, 8)]
    with pytest.raises(errors.InvalidArgument):
        plan(block, time_limit=-1)
    with pytest.raises(errors.InvalidAlignment):
        plan(block, alignment=3)
    with pytest.raises(errors.InvalidSize):
        plan(block, capacity="many")
    with pytest.raises(errors.InvalidLifetimes):
        plan([*block, *block])
    with pytest.raises(errors.InvalidSize):
        plan([Lifetime(str(number), 0, 1, 2**61) for number in range(3)])


def test_a_capacity_that_cannot_be_met_gives_a_plan_that_does_not_fit() -> None:
    made = plan([Lifetime("a", 0, 2, 8), Lifetime("b", 1, 3, 8)], capacity=12)
    assert made.height == 16 and not made.fits(12) and made.fits("16B")


# --- Its file ---


@settings(deadline=None, max_examples=50)
@given(small_instances())
def test_what_is_saved_is_loaded_again(lifetimes: list[Lifetime]) -> None:
    made = plan(lifetimes, time_limit=1)
    text = io.StringIO()
    save_plan(made, text)
    assert load_plan(io.StringIO(text.getvalue())) == made


def test_a_file_is_saved_and_loaded_by_name(tmp_path: Path) -> None:
    made = plan([Lifetime("a", 0, 2, 8), Lifetime("b", 1, 3, 8)])
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == load_plan(str(tmp_path / "plan.json")) == made


def damaged(**changes: object) -> str:
    sound = plan_to_json(Plan((Lifetime("a", 0, 2, 8), Lifetime("b", 1, 3, 8)), (0, 8), 16, 16))
    return json.dumps({key: value for key, value in {**sound, **changes}.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "exactly the keys"),
        (damaged(height=None), "exactly the keys"),
        (damaged(more=1), "exactly the keys"),
        (damaged(schema="other"), "'other' of version 1"),
        (damaged(version=2), "of version 2"),
        (damaged(version=True), "version is True and not int"),
        (damaged(height=16.0), "height is 16.0 and not int"),
        (damaged(height=10**30), "not int"),
        (damaged(bound=17), "under its bound"),
        (damaged(alignment=0), "its alignment is 0"),
        (damaged(alignment=3), "its alignment is 3"),
        (damaged(alignment=16), "no multiple of 16"),
        (damaged(seconds=-1), "seconds is -1"),
        (damaged(seconds=0).replace('"seconds": 0', '"seconds": NaN'), "NaN is no number"),
        (damaged(blocks=[["a", 0, 2, 8]]), "block 0 is not"),
        (damaged(blocks=[["a", 0, 2, 8, "0"]]), "block 0 is not"),
        (damaged(blocks=[["a", 0, 2, 8, 0], ["a", 5, 6, 8, 8]]), "'a' is that of line 2 already"),
        (damaged(blocks=[["a", 0, 2, 8, 0], ["b", 1, 3, 8, 7]]), "share bytes"),
        (damaged(blocks=[["a", 0, 2, 8, 9]]), "lies outside"),
        (damaged().replace('"version"', '"schema"'), "a key comes twice"),
    ],
)
def test_a_damaged_file_is_refused_and_says_why(text: str, complaint: str) -> None:
    with pytest.raises(errors.InvalidPlan) as caught:
        plan_from_json(text, "plan.json")
    assert complaint in str(caught.value) and caught.value.source == "plan.json"


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_no_change_of_a_byte_gives_a_plan_that_is_not_sound(data: st.DataObject) -> None:
    text = bytearray(damaged().encode())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        made = plan_from_json(bytes(text))
    except errors.InvalidPlan:
        return
    assert collisions(made) == []
