"""Where the vendors' libraries are looked for, and what is said about files that do not serve."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensormem.config import Config
from tensormem.drivers import libraries, simulator
from tensormem.testing import simulated_gpu

PROBE = "import tensormem as tm; print(*[f'{each.reason} | {each.advice}' for each in tm.drivers.probe()], sep='\\n')"


def probe(environ: dict[str, str]) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENSORMEM_")}
    done = subprocess.run([sys.executable, "-c", PROBE], env={**clean, **environ}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("variable", ["TENSORMEM_CUDA_LIBRARY", "TENSORMEM_HIP_LIBRARY"])
@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("nowhere.so", "there is no such file"),
        ("folder", "it is not a file"),
        ("text.so", "it is not a shared library"),
        ("cut.so", ""),
    ],
)
def test_a_named_file_that_is_not_a_library_is_refused_by_name(
    tmp_path: Path, variable: str, file: str, why: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.so").write_text("not a library")
    (tmp_path / "cut.so").write_bytes(b"\x7fELF cut short")
    named = str(tmp_path / file)
    said = probe({variable: named})
    assert f"{variable} names {named}, but {named} cannot be opened: {why}" in said
    assert "Name the vendor's own library there, or unset the variable" in said


@pytest.mark.parametrize(
    ("variable", "what"), [("TENSORMEM_CUDA_LIBRARY", "a CUDA driver"), ("TENSORMEM_HIP_LIBRARY", "a HIP runtime")]
)
def test_a_named_library_that_is_not_a_driver_is_refused_by_name(variable: str, what: str) -> None:
    other = simulator.library_path("rocm" if "CUDA" in variable else "cuda")
    assert f"{variable} names {other}, but {other} is not {what}" in probe({variable: other})


def test_a_named_library_is_opened_and_no_other(tmp_path: Path) -> None:
    own = tmp_path / "libmine.so"
    own.symlink_to(simulator.library_path("cuda"))  # which is a driver without devices unless it is switched on
    said = probe({"TENSORMEM_CUDA_LIBRARY": str(own)})
    assert f"TENSORMEM_CUDA_LIBRARY names {own}, but the CUDA driver is there, but it finds no device" in said


def test_a_library_that_a_variable_names_is_the_only_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "get_config", lambda: Config(hip_library="/opt/mine/libamdhip64.so.7"))
    assert libraries.candidates("rocm") == [("/opt/mine/libamdhip64.so.7", "TENSORMEM_HIP_LIBRARY")]


def test_every_release_of_hip_is_looked_for() -> None:
    names = [each.library for each in libraries.candidates("rocm") if each.origin == "the loader"]
    assert names == ["libamdhip64.so", *(f"libamdhip64.so.{release}" for release in (8, 7, 6, 5))]


@pytest.mark.parametrize(
    ("file", "origin"),
    [
        ("_rocm_sdk_core/lib/libamdhip64.so.7", "the package _rocm_sdk_core"),
        ("torch/lib/libamdhip64.so", "the package torch"),
    ],
)
def test_wheels_of_amd_and_pytorchs_own_copy_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, origin: str
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_bytes(b"")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert (str(tmp_path / file), origin) in libraries.candidates("rocm")


def test_a_simulated_gpu_that_was_switched_off_is_not_taken_for_a_driver() -> None:
    with simulated_gpu(devices=1, memory="32MiB"):
        pass
    assert all(each.origin != "loaded in this process" for each in libraries.candidates("cuda"))


def test_what_is_there_and_broken_tells_more_than_what_is_absent() -> None:
    absent = "libamdhip64.so cannot be opened: libamdhip64.so: cannot open shared object file: No such file"
    refused = [libraries.Refusal("libamdhip64.so", absent), libraries.Refusal("/x.so", "/x.so: file too short")]
    assert refused[0].is_absent and not refused[1].is_absent
    assert libraries.explain(refused) == "/x.so: file too short"
