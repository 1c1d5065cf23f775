"""tensormem.testing.workloads and plan_instances: real workloads are found or not needed; cut rectangles are exact."""

from pathlib import Path

import pytest

from tensormem.testing.plan_instances import Cut, cut_rectangle, perturbed
from tensormem.testing.workloads import VARIABLE, workload_files, workload_folder
from tensormem.trace import check_lifetimes, peak_load


def test_the_folder_named_by_the_variable_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    file = tmp_path / "torch" / "step.csv"
    file.touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert workload_folder() == tmp_path
    assert workload_files("torch/*.csv") == [file] and workload_files("llm/*") == []


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        workload_folder()


@pytest.mark.parametrize("step", [1, 64, 4099])
@pytest.mark.parametrize("cut", Cut)
def test_a_cut_rectangle_is_full_at_every_moment(cut: Cut, step: int) -> None:
    lifetimes = cut_rectangle(200, cut=cut, capacity=2048 * step, duration=500, step=step, seed=5)
    check_lifetimes(lifetimes)
    moments = {each.lower for each in lifetimes}
    loads = {sum(each.size for each in lifetimes if each.lower <= now < each.upper) for now in moments}
    assert loads == {2048 * step} and 150 <= len(lifetimes) <= 210
    assert all(each.size % step == 0 for each in lifetimes)


def test_the_same_seed_cuts_the_same_blocks_and_another_does_not() -> None:
    assert cut_rectangle(50, seed=3) == cut_rectangle(50, seed=3) != cut_rectangle(50, seed=4)


def test_a_perturbed_instance_is_never_larger() -> None:
    whole = cut_rectangle(100, seed=2)
    less = perturbed(whole, share=0.2)
    assert sum(a != b for a, b in zip(whole, less, strict=True)) == 20
    assert peak_load(less) <= peak_load(whole) and all(b.size <= a.size for a, b in zip(whole, less, strict=True))
