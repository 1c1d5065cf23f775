"""`tensormem doctor`: what it prints, and the number it ends with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensormem.cli.main import cli
from tensormem.reports.machine import System
from unit.fake_machine import Machine, healthy_machine

KEYS = {"name", "area", "status", "value", "unit", "reason", "advice", "command"}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delenv("NO_COLOR", raising=False)
    return healthy_machine(tmp_path)


def run(machine: System, *arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(cli, ["doctor", *arguments], obj=machine, env=environ)


def test_json_has_a_version_and_raw_values_under_stable_keys(machine: Machine) -> None:
    result = run(machine, "--json")
    report = json.loads(result.stdout)
    assert report.keys() == {"version", "findings"}
    assert report["version"] == 1
    assert all(finding.keys() == KEYS for finding in report["findings"])
    values = {finding["name"]: finding["value"] for finding in report["findings"]}
    assert values["main_memory"] == 16 * 2**30
    assert values["max_map_count"] == 65530


def test_it_ends_with_0_when_all_is_well_and_gives_a_first_step(machine: Machine) -> None:
    result = run(machine)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "all is well" in result.stdout
    assert result.stdout.splitlines()[-1].startswith('Next: python -c "import tensormem')


def test_it_ends_with_1_for_a_finding_and_gives_its_remedy(machine: Machine) -> None:
    machine.write("/proc/sys/vm/overcommit_memory", "2")
    result = run(machine)
    assert result.exit_code == 1
    assert "1 degraded" in result.stdout
    assert result.stdout.splitlines()[-1] == "Next: sudo sysctl -w vm.overcommit_memory=0"


def test_it_ends_with_2_for_a_wrong_command_line(machine: Machine) -> None:
    result = run(machine, "--loudly")
    assert result.exit_code == 2
    assert "No such option" in result.stderr


def test_it_ends_with_3_on_a_system_that_is_not_linux(machine: Machine) -> None:
    machine.platform = "darwin"
    result = run(machine, "--quiet")
    assert result.exit_code == 3
    assert "tensormem runs on Linux only" in result.stdout


def test_it_ends_with_3_when_the_core_does_not_load(machine: Machine) -> None:
    machine.core = ImportError("undefined symbol: tensormem")
    result = run(machine)
    assert result.exit_code == 3
    assert "undefined symbol" in result.stdout
    assert "Traceback" not in result.output
    assert result.stdout.splitlines()[-1] == "Next: pip install --force-reinstall tensormem"


@pytest.mark.parametrize("package", ["click", "rich"])
def test_it_ends_with_3_and_names_the_extra_when_a_package_is_missing(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from tensormem.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "doctor"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"needs the package {package}" in done.stderr
    assert "pip install 'tensormem[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_module_runs_as_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "tensormem", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tensormem, version ")


def test_quiet_says_nothing_when_all_is_well_and_only_the_trouble_otherwise(machine: Machine) -> None:
    assert run(machine, "-q").output == ""
    machine.huge = (False, "the kernel refuses")
    output = run(machine, "-q").output
    assert "the kernel refuses" in output
    assert "overcommit" not in output


def test_verbose_shows_raw_numbers_beside_the_readable_ones(machine: Machine) -> None:
    assert "(17179869184)" in run(machine, "-v").output
    assert "(17179869184)" not in run(machine).output


def test_colours_are_there_for_a_terminal_and_gone_when_asked(machine: Machine) -> None:
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    assert "\x1b[" in run(machine, **terminal).output
    assert "\x1b[" not in run(machine, "--no-color", **terminal).output
    assert "\x1b[" not in run(machine, **terminal, NO_COLOR="1").output


def test_what_the_machine_says_is_never_taken_for_markup(machine: Machine) -> None:
    machine.environ = {"TENSORMEM_COLOUR": "[red]x[/red]"}
    assert "[red]x[/red]" in run(machine).output
