"""Crosses every maker of memory with every promise of "What every maker of memory keeps" (docs/reference/makers.md)."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest

import tensormem as tm
from crossings.makers import NBYTES, Maker, each
from tensormem import config
from tensormem._core import finish_streams_of, live_resources
from tensormem.reports.live import take_snapshot
from tensormem.reports.metrics.measuring import Meter
from tensormem.testing import simulated_gpu
from tensormem.testing.held_call import held_call
from tensormem.trace import open as open_trace


def settle() -> None:
    """Drop garbage, and free what streams have passed since."""
    gc.collect()
    for _, mr in live_resources():
        mr.reap_pending()
    tm.mr.trim()


@pytest.fixture(autouse=True)
def settled() -> None:
    """What tests before this one left to streams and to the garbage collector is gone."""
    settle()


def charged(space: str) -> int:
    """What limits count in a space, by the figures that `top` shows."""
    return sum(each.charged_bytes for each in take_snapshot(None).spaces if each.name == space)


@each()
def test_memory_is_in_the_space_that_was_meant(maker: Maker) -> None:
    with maker.ready():
        before = charged(maker.space)
        made = maker.make(NBYTES)
        assert charged(maker.space) - before >= NBYTES
        made.close()


@each()
def test_a_limit_in_force_charges_it_and_is_given_all_of_it_back(maker: Maker) -> None:
    with maker.ready():
        with tm.limit("32MiB") as limit:
            made = maker.make(NBYTES)
            used = limit.used
        assert used == made.charged
        made.close()
        del made
        settle()
        assert limit.used == 0
        assert limit.peak_bytes >= used


@each(but=lambda maker: maker.space != "main")
def test_a_limiting_resource_in_force_charges_it(maker: Maker) -> None:
    with maker.ready():
        limiting = tm.mr.LimitingResourceAdaptor(tm.mr.HostMemoryResource(), "32MiB")
        with tm.use_resource(limiting):
            made = maker.make(NBYTES)
            assert limiting.allocated_bytes >= NBYTES
        made.close()
        del made
        settle()
        assert limiting.allocated_bytes == 0


@each()
def test_what_does_not_fit_is_refused_with_the_whole_report_and_changes_nothing(
    maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = tmp_path / "oom.json"
    with maker.ready():
        before = charged(maker.space)
        monkeypatch.setenv("TENSORMEM_OOM_DUMP", str(dump))
        monkeypatch.setattr(config, "_current", {})
        with tm.limit(NBYTES - 1) as limit, tm.tag("activations"), pytest.raises(MemoryError) as caught:
            maker.make(NBYTES)
        error = caught.value
        assert isinstance(error, tm.errors.OutOfBudget | tm.errors.OutOfPhysicalMemory | tm.errors.OutOfMemory)
        report = error.report()
        assert report.requested >= NBYTES
        assert report.layers and report.hints
        assert json.loads(dump.read_text())["requested"] == report.requested
        settle()
        assert limit.used == 0
        assert charged(maker.space) == before


@each()
def test_statistics_top_and_metrics_agree_with_the_limit_to_the_byte(maker: Maker) -> None:
    with maker.ready():
        maker.make(NBYTES).close()  # what is made once, such as a pool of pinned memory, is there
        settle()
        stats, shown, metered = tm.memory_stats()["charged_bytes"], charged(maker.space), _metered(maker.space)
        with tm.limit() as limit:
            made = maker.make(NBYTES)
        settle()  # what a copy was staged in is nobody's
        assert tm.memory_stats()["charged_bytes"] - stats == limit.used
        assert charged(maker.space) - shown == limit.used
        assert _metered(maker.space) - metered == limit.used
        made.close()
        del made
        settle()
        assert tm.memory_stats()["charged_bytes"] == stats


def _metered(space: str) -> float:
    samples = Meter().samples()
    return sum(each.value for each in samples if each.name == "space_charged_bytes" and each.labels == (space,))


@each()
def test_a_trace_has_its_beginning_and_its_end_once_with_tag_and_space(maker: Maker, tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    with maker.ready():
        maker.make(NBYTES).close()
        settle()
        with tm.trace(path), tm.tag("crossing"):
            made = maker.make(NBYTES)
            made.close()
            del made
            settle()
        _check_lives(path, maker.space, "crossing")


@each(but=lambda maker: maker.takes_tag is None)
def test_a_tag_that_is_given_is_stronger_than_the_scope(maker: Maker, tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    with maker.ready():
        assert maker.takes_tag is not None
        with tm.trace(path), tm.tag("around"):
            made = maker.takes_tag(NBYTES, "given")
            made.close()
            del made
            settle()
        _check_lives(path, maker.space, "given")


@each()
def test_a_trace_has_the_end_of_what_is_dropped_without_closing(maker: Maker, tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    with maker.ready():
        with tm.trace(path), tm.tag("crossing"):
            made = maker.make(NBYTES)
            del made
            settle()
        _check_lives(path, maker.space, "crossing")


def _check_lives(path: Path, space: str, tag: str) -> None:
    trace = open_trace(path)
    lives = [life for life in trace.blocks() if life.tag == tag]
    assert lives, f"nothing is called {tag!r}"
    outermost = [life for life in lives if life.space == space]
    assert sum(life.nbytes for life in outermost) >= NBYTES
    assert all(life.end_ns is not None for life in lives), "never freed in the trace"


@each()
def test_the_pytest_limit_sees_it(maker: Maker) -> None:
    from tensormem.mr.current import measure_everywhere

    with maker.ready():
        counted = tm.limit(space=maker.space)
        with measure_everywhere(counted, maker.space, stacks=True):
            made = maker.make(NBYTES)
            assert counted.used >= NBYTES
            made.close()
            del made
            settle()
            assert counted.used == 0


@each()
def test_closing_twice_is_harmless(maker: Maker) -> None:
    with maker.ready():
        made = maker.make(NBYTES)
        made.close()
        made.close()


@each(but=lambda maker: not maker.has_views)
def test_it_is_not_closed_under_a_view(maker: Maker) -> None:
    with maker.ready():
        made = maker.make(NBYTES)
        assert made.view is not None
        view = made.view()
        before = bytes(view[:16])
        with pytest.raises(BufferError):
            made.close()
        assert bytes(view[:16]) == before
        view.release()
        made.close()


@each(but=lambda maker: not maker.has_views)
def test_it_is_not_closed_while_a_call_was_given_its_address_as_a_number(maker: Maker) -> None:
    with maker.ready():
        made = maker.make(NBYTES)
        assert made.view is not None
        with made.view() as view:
            address = tm.wrap(view).ptr
        with held_call(tm.drivers.host(), address), pytest.raises(BufferError):
            made.close()
        made.close()


@pytest.mark.parametrize("gpu", [None, "cuda", "rocm"])
def test_a_process_that_ends_with_memory_of_every_maker_open_ends_well(gpu: str | None) -> None:
    script = f"""
        import sys
        sys.path[:] = {sys.path!r}
        from contextlib import ExitStack
        from crossings.makers import MAKERS, NBYTES
        from tensormem.testing import simulated_gpu
        scope, gpu = ExitStack(), {gpu!r}
        if gpu is not None:
            scope.enter_context(simulated_gpu(devices=2, memory="256MiB", vendor=gpu))
        kept = [maker.make(NBYTES) for maker in MAKERS if maker.gpu == gpu and maker.needs() is None]
        views = [made.view() for made in kept if made.view is not None]
        assert len(kept) > 5
    """
    ended = subprocess.run([sys.executable, "-c", dedent(script)], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")


@each()
def test_a_forked_child_can_use_it_or_is_told_and_the_parent_keeps_it(maker: Maker) -> None:
    with maker.ready():
        made = maker.make(NBYTES)
        child = os.fork()
        if child == 0:
            try:
                maker.make(NBYTES).close()
                made.close()
                os._exit(0)
            except tm.TensormemError:
                os._exit(0)  # told by name
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        made.close()


@each(but=lambda maker: not maker.system_calls)
def test_when_any_system_call_fails_nothing_is_lost(maker: Maker) -> None:
    from tensormem.testing.faults import each_system_call_fails

    with maker.ready():
        maker.make(NBYTES).close()
        settle()
        before = tm.memory_stats()["charged_bytes"]
        for raised in each_system_call_fails(lambda: maker.make(NBYTES).close()):
            assert raised is None or isinstance(raised, tm.TensormemError | OSError | MemoryError), raised
            del raised
            settle()
            assert tm.memory_stats()["charged_bytes"] == before


@each(but=lambda maker: maker.gpu is None)
def test_when_any_call_of_a_gpus_driver_fails_nothing_is_lost(maker: Maker) -> None:
    assert maker.gpu is not None
    for nth in count(1):
        with simulated_gpu(devices=2, memory="256MiB", vendor=maker.gpu, strict=False) as gpu:
            maker.make(NBYTES).close()
            settle()
            before = charged(maker.space)
            gpu.fail("*", nth)
            with suppress(tm.TensormemError):
                maker.make(NBYTES).close()
            fired = gpu.has_failed
            gpu.clear_plan()
            finish_streams_of(maker.gpu)  # a copy that was queued before the failure holds both sides until it is done
            settle()
            assert charged(maker.space) == before, f"call {nth}"
        if not fired:
            assert nth > 1, "making it calls the driver"
            break


@each(but=lambda maker: not maker.has_stack)
def test_a_trace_with_stacks_names_the_call_that_made_it(maker: Maker, tmp_path: Path) -> None:
    path = tmp_path / "run.tmt"
    with maker.ready():
        with tm.trace(path, stacks=True), tm.tag("crossing"):
            made = maker.make(NBYTES)
        trace = open_trace(path)
        lives = [life for life in trace.blocks() if life.tag == "crossing" and life.space == maker.space]
        frames = [frame for life in lives for frame in trace.stack(life)]
        assert any("makers.py" in frame.file for frame in frames), "no call of ours behind it"
        made.close()
