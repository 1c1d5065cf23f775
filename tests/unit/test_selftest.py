"""`tensormem selftest`: what it finds, what it says about it, and that nothing stops it from writing its report."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.broken_driver import break_driver, break_library, count_in_driver, hide_pytest
from tensormem.cli.main import cli
from tensormem.drivers import simulator
from tensormem.reports.selftest import (
    CheckResult,
    GroupResult,
    Measurement,
    SelftestReport,
    Verdict,
    page,
)
from tensormem.reports.selftest.groups import GROUPS
from tensormem.testing.gpus import simulated_environment

VENDORS = ["cuda", "rocm"]
QUICK = [group.name for group in GROUPS if group.name not in ("conformance", "timings")]


class Run:
    """A selftest that has ended: its exit code, what it printed, its report."""

    def __init__(self, folder: Path, environ: dict[str, str], groups: Sequence[str], *options: str) -> None:
        chosen = [word for group in groups for word in ("--group", group)]
        command = [sys.executable, "-m", "tensormem", "selftest", "-o", str(folder / "report.json"), *chosen, *options]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TENSORMEM_")}
        self.done = subprocess.run(
            command, env={**clean, "NO_COLOR": "1", **environ}, capture_output=True, text=True, timeout=400
        )
        self.code = self.done.returncode
        self.text = self.done.stdout + self.done.stderr
        self.report: dict[str, Any] = json.loads((folder / "report.json").read_text())
        self.page = (folder / "report.html").read_text()

    def verdict(self, group: str) -> str:
        return str(self.group(group)["verdict"])

    def group(self, name: str) -> dict[str, Any]:
        return next(group for group in self.report["groups"] if group["name"] == name)

    def reasons(self, group: str) -> str:
        found = self.group(group)
        return " | ".join([found["why"], *(f"{check['name']}: {check['why']}" for check in found["checks"])])


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_function_of_the_driver_is_called_and_the_driver_itself_says_so(tmp_path: Path, vendor: str) -> None:
    environ = simulated_environment(2, "512MiB", vendor=vendor) | count_in_driver(tmp_path, vendor)
    run = Run(tmp_path, environ, QUICK, "--device", f"{vendor}:0")
    assert run.code == 0, run.text
    assert run.report["uncalled"] == []
    counted: dict[str, int] = {}
    for file in tmp_path.glob("calls-*.json"):
        for name, count in json.loads(file.read_text()).items():
            counted[name] = counted.get(name, 0) + count
    functions = run.report["facts"]["driver"]["functions"]
    silent = [name for name in functions if not counted.get(name)]
    assert all(name.endswith(("GetErrorName", "GetErrorString")) for name in silent)  # which the driver does not count
    assert len(functions) - len(silent) > 50


def test_a_simulated_device_passes_and_the_report_says_that_it_is_simulated(tmp_path: Path) -> None:
    run = Run(tmp_path, simulated_environment(1, "256MiB"), ["driver", "memory", "timings", "several GPUs"])
    assert (run.code, run.done.stderr) == (0, ""), run.text
    assert run.done.stdout.startswith("cuda:0: ") and "(simulated: its times say nothing about a GPU)" in run.text
    assert run.done.stdout.splitlines()[-1].startswith("Next: look at ")
    report = run.report
    assert (report["version"], report["simulated"], report["verdict"]) == (2, True, "passed")
    assert report["facts"]["driver"]["library"] == simulator.library_path("cuda")
    assert report["facts"]["attributes"]["virtual_memory"] == 1
    assert run.verdict("several GPUs") == "not offered" and "there is one device only" in run.page
    measured = {each["name"]: each for each in run.group("timings")["measurements"]}
    assert measured["allocate and free 1 MiB, driver"]["bare_microseconds"] > 0
    assert "simulated GPU" in run.page and "Traceback" not in run.page


def test_the_host_is_examined_where_no_gpu_is(tmp_path: Path) -> None:
    run = Run(tmp_path, {}, ["driver", "memory", "streams", "sharing", "elastic", "dlpack"])
    assert run.code == 0, run.text
    assert run.report["device"] == "host" and run.verdict("driver") == "not offered"
    assert run.verdict("memory") == run.verdict("elastic") == "passed"


def test_no_group_but_the_conformance_suite_needs_pytest(tmp_path: Path) -> None:
    environ = simulated_environment(1, "256MiB") | hide_pytest(tmp_path)
    run = Run(tmp_path, environ, ["driver", "memory", "dlpack", "conformance"])
    assert run.code == 0, run.text
    assert "pytest is not installed" in run.reasons("conformance")


@pytest.mark.parametrize(
    ("option", "lost"), [("pools", ["pools"]), ("virtual", ["virtual memory", "elastic", "sharing"])]
)
def test_what_the_device_does_not_offer_is_said_and_is_not_a_failure(
    tmp_path: Path, option: str, lost: list[str]
) -> None:
    environ = simulated_environment(1, "256MiB", **{option: 0})  # type: ignore[arg-type]
    run = Run(tmp_path, environ, [*lost, "memory", "waiting", "timings"])
    assert run.code == 0, run.text
    assert {run.verdict(group) for group in lost} == {"not offered"}
    assert run.verdict("memory") == "passed" and "Traceback" not in run.text + run.page


PROFILES = {
    "orin": set[str](),
    "wsl": {"sharing"},
    "vgpu": {"pools", "managed"},
    "novmm": {"pools", "elastic", "sharing"},
}


@pytest.mark.parametrize("profile", PROFILES)
def test_kinds_of_devices_pass_in_what_they_offer(tmp_path: Path, profile: str) -> None:
    groups = ["memory", "pools", "managed", "elastic", "sharing"]
    run = Run(tmp_path, simulated_environment(1, "256MiB", profile=profile), groups)
    assert run.code == 0, run.text
    assert {group for group in groups if run.verdict(group) == "not offered"} == PROFILES[profile]
    assert "Traceback" not in run.text + run.page


def test_a_device_that_is_not_there_ends_with_3_and_a_report_of_why(tmp_path: Path) -> None:
    run = Run(tmp_path, simulated_environment(1, "64MiB"), ["driver"], "--device", "cuda:77")
    assert run.code == 3
    assert "cuda:77 cannot be examined" in run.text and "numbered from 0" in run.report["refusal"]
    assert run.report["machine"]["tensormem"] and "cannot be examined" in run.page


@pytest.mark.parametrize("device", ["banana", "pinned", ""])
def test_what_is_not_a_device_is_refused_before_anything_is_written(tmp_path: Path, device: str) -> None:
    result = CliRunner().invoke(cli, ["selftest", "--device", device, "-o", str(tmp_path / "report.json")])
    assert result.exit_code == 2 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["report.json", "report.html"])
def test_a_file_that_is_there_is_not_written_over(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    result = CliRunner().invoke(cli, ["selftest", "--device", "host", "-o", str(tmp_path / "report.json")])
    assert (result.exit_code, (tmp_path / name).read_text()) == (2, "precious")
    assert "--force" in result.stderr


# --- Broken drivers and broken implementations ---


def test_a_call_that_never_returns_is_found_and_the_other_groups_go_on(tmp_path: Path) -> None:
    environ = simulated_environment(1, "256MiB") | break_driver(tmp_path, delay="cuMemFree")
    run = Run(tmp_path, environ, ["driver", "memory", "virtual memory"], "--time-limit", "15")
    assert run.code == 1
    assert [run.verdict(group) for group in ("driver", "memory", "virtual memory")] == ["passed", "hung", "passed"]
    assert "Bytes come back as they went: did not end in 15 seconds" in run.reasons("memory")
    assert "memory.py" in run.group("memory")["output"]  # where every thread was


def test_a_crash_is_found_and_the_other_groups_go_on(tmp_path: Path) -> None:
    environ = simulated_environment(1, "256MiB") | break_driver(tmp_path, crash="cuMemHostAlloc")
    run = Run(tmp_path, environ, ["memory", "dlpack"], "--device", "cuda:0")
    assert (run.code, run.verdict("memory"), run.verdict("dlpack")) == (1, "crashed", "passed"), run.text
    assert "was ended by SIGSEGV" in run.reasons("memory")


BREAKAGES = {
    # the GIL is held where a driver waits for the device
    "free_waits": ({"gil": "cuMemFree"}, "waiting", "hung"),
    "unpinning waits": ({"gil": "cuMemHostUnregister"}, "waiting", "hung"),
    "bounded_queue": ({"gil": "cuMemsetD8Async"}, "waiting", "hung"),
    # the mode of the thread is not exchanged around calls that a capture forbids
    "capture_rules": ({"nothing": "cuThreadExchangeStreamCaptureMode"}, "capture", "failed"),
    # copies between two devices name neither, and nothing is granted
    "peer_grants": ({"plain": "cuMemcpyPeerAsync cuDeviceCanAccessPeer"}, "several GPUs", "failed"),
    # order, bytes and answers
    "work that nobody waits for": ({"nothing": "cuStreamWaitEvent"}, "streams", "failed"),
    "pools that fail": ({"fail": "cuMemAllocFromPoolAsync"}, "pools", "failed"),
    "granularity": ({"fail": "cuMemAddressReserve"}, "elastic", "failed"),
    "external memory": ({"nothing": "cuExternalMemoryGetMappedBuffer"}, "external", "failed"),
}


@pytest.mark.parametrize("habit", BREAKAGES)
def test_an_implementation_that_breaks_a_habit_is_found(tmp_path: Path, habit: str) -> None:
    plan, group, verdict = BREAKAGES[habit]
    environ = simulated_environment(2, "256MiB") | break_driver(tmp_path, **plan)
    limit = "8" if verdict == "hung" else "60"
    run = Run(tmp_path, environ, [group], "--device", "cuda:0", "--time-limit", limit)
    assert (run.code, run.verdict(group)) == (1, verdict), run.text


# What a driver in between cannot break is broken in Python, as somebody would who does not know of the habit.
LIBRARY_BREAKAGES = {
    "sizeless_descriptors": (
        """
        import os
        import tensormem.vmm
        class Trusting(tensormem.vmm.VirtualMemoryManager):
            def import_handle(self, fd, size=None, device=None):
                return super().import_handle(fd, os.fstat(fd).st_size or None, device)
        tensormem.vmm.VirtualMemoryManager = Trusting
        """,
        "sharing",
        "failed",
    ),
    "serial_host_functions": (
        """
        import threading
        from tensormem.copy import routes
        def come_after(stream, other):
            done = threading.Event()
            if stream is not other:
                stream.launch(done.wait)
                other.launch(done.set)
        routes.come_after = come_after
        """,
        "waiting",
        "hung",
    ),
}


@pytest.mark.parametrize("habit", LIBRARY_BREAKAGES)
@pytest.mark.parametrize("on", [True, False])
def test_a_library_that_does_not_know_a_habit_is_found_by_the_habit_alone(tmp_path: Path, habit: str, on: bool) -> None:
    lines, group, verdict = LIBRARY_BREAKAGES[habit]
    environ = simulated_environment(1, "256MiB", habits={habit: on}) | break_library(tmp_path, lines)
    limit = "25" if verdict == "hung" and on else "60"
    run = Run(tmp_path, environ, [group], "--device", "cuda:0", "--time-limit", limit)
    assert run.verdict(group) == (verdict if on else "passed"), run.text


def test_zero_bytes_that_are_asked_of_a_pool_are_found(tmp_path: Path) -> None:
    lines = """
        from tensormem import mr
        class Generous(mr.GpuAsyncMemoryResource):
            def allocate(self, nbytes, *arguments, **options):
                return super().allocate(nbytes or 1, *arguments, **options)
        mr.GpuAsyncMemoryResource = Generous
    """
    environ = simulated_environment(1, "256MiB") | break_library(tmp_path, lines)
    run = Run(tmp_path, environ, ["pools"], "--device", "cuda:0")
    assert run.verdict("pools") == "failed" and "zero bytes were allocated" in run.reasons("pools")


def test_a_descriptor_handed_over_in_the_form_of_another_release_is_found(tmp_path: Path) -> None:
    # Its form is not that of the version which it says it has.
    environ = simulated_environment(1, "256MiB", vendor="rocm", profile="mi300-rocm6.2", version=70100000)
    run = Run(tmp_path, environ, ["sharing"], "--device", "rocm:0")
    assert run.verdict("sharing") in {"failed", "crashed"}, run.text


# --- Ended by the user ---


def test_an_interrupt_ends_it_in_one_line_with_the_report_so_far(tmp_path: Path) -> None:
    environ = {**os.environ, "NO_COLOR": "1", **simulated_environment(1, "64MiB")}
    environ |= break_driver(tmp_path, delay="cuMemFree")
    command = [sys.executable, "-m", "tensormem", "selftest", "-o", str(tmp_path / "report.json")]
    child = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stderr is not None
    with child:
        while "The driver" not in child.stdout.readline():
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        said, trouble = child.communicate(timeout=60)
    assert (child.returncode, trouble) == (3, "")
    assert said.splitlines()[-2] == "interrupted; the report has what was done so far"
    report = json.loads((tmp_path / "report.json").read_text())
    verdicts = [group["verdict"] for group in report["groups"]]
    assert len(verdicts) == len(GROUPS) and verdicts[0] == "passed" and verdicts[-1] == "not run"
    assert report["interrupted"] and "It was interrupted" in (tmp_path / "report.html").read_text()


# --- The report as data ---


def group(*verdicts: Verdict) -> GroupResult:
    return GroupResult("g", "G", tuple(CheckResult(f"check {number}", each) for number, each in enumerate(verdicts)))


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([Verdict.PASSED, Verdict.NOT_OFFERED], Verdict.PASSED),
        ([Verdict.PASSED, Verdict.FAILED], Verdict.FAILED),
        ([Verdict.NOT_OFFERED], Verdict.NOT_OFFERED),
        ([], Verdict.NOT_OFFERED),
    ],
)
def test_a_group_passes_only_when_something_ran_and_nothing_failed(verdicts: list[Verdict], expected: Verdict) -> None:
    assert group(*verdicts).verdict is expected


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], Verdict.NOT_RUN),
        ([Verdict.NOT_OFFERED], Verdict.NOT_RUN),
        ([Verdict.NOT_OFFERED, Verdict.PASSED], Verdict.PASSED),
        ([Verdict.PASSED, Verdict.HUNG], Verdict.FAILED),
    ],
)
def test_a_report_passes_only_when_a_group_does(verdicts: list[Verdict], expected: Verdict) -> None:
    assert SelftestReport("host", groups=[group(each) for each in verdicts]).verdict is expected


def test_what_a_driver_says_is_never_taken_for_markup() -> None:
    report = SelftestReport("cuda:0")
    report.groups.append(GroupResult("g", "<b>G</b>", (CheckResult("<i>", Verdict.FAILED, "<script>"),)))
    assert "<script>" not in page(report) and "&lt;b&gt;G" in page(report)


def test_times_are_compared_with_bare_calls_where_there_are_some() -> None:
    assert (Measurement("a", 4.0, 2.0).ratio, Measurement("a", 4.0).ratio) == (2.0, None)
