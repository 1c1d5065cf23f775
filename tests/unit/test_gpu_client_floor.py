"""The command that runs other people's GPU tests: what it counts, and what it calls better and worse."""

import json
from pathlib import Path

import pytest

from tensormem.testing import clients

PASSES = "def test_passes():\n    pass\n\n\ndef test_fails():\n    assert False\n"


def checkout(folder: Path) -> Path:
    tests = folder / "cuda_core" / "tests"
    tests.mkdir(parents=True)
    (tests / "test_stream.py").write_text(PASSES)
    return folder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    core = clients.Client(
        name="cuda-core", vendor="cuda", folder=Path("cuda_core", "tests"), tests=("test_stream.py", "test_gone.py")
    )
    monkeypatch.setattr(clients, "CLIENTS", (core,))


@pytest.mark.usefixtures("small")
def test_the_command_counts_compares_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    floor = tmp_path / "floor.json"
    arguments = ["--cuda-core", str(checkout(tmp_path)), "--floor", str(floor)]
    assert clients.main([*arguments, "--update"]) == 0
    assert "better: cuda-core test_stream.py: 0 passed before, 1 now" in capsys.readouterr().out
    kept = json.loads(floor.read_text())
    assert kept["clients"]["cuda-core"]["test_stream.py"] == {"failure": 1, "passed": 1}
    assert kept["clients"]["cuda-core"]["test_gone.py"] == {"error": 1}
    kept["clients"]["cuda-core"]["test_stream.py"]["passed"] = 2
    floor.write_text(json.dumps(kept))
    assert clients.main(arguments) == 1
    assert "worse: cuda-core test_stream.py: 2 passed before, 1 now" in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_a_folder_that_is_not_a_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a checkout of cuda-core"):
        clients.main(["--cuda-core", str(tmp_path)])
    with pytest.raises(SystemExit):
        clients.main([])


def test_the_floor_of_the_repository_names_only_what_is_run() -> None:
    kept = json.loads(Path(__file__).parents[1].joinpath("gpu_clients.json").read_text())
    known = {client.name: {*client.tests, *client.programs} for client in clients.CLIENTS}
    assert kept["version"] == 1
    for name, files in kept["clients"].items():
        assert set(files) <= known[name]
