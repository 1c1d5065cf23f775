"""The package of adapters: what it offers, and that nothing is loaded before it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

from tensormem import interop
from tensormem.interop.library import load


@pytest.mark.parametrize("name", interop.__all__)
def test_every_module_is_loaded_when_it_is_named(name: str) -> None:
    module = getattr(interop, name)
    assert module.__name__ == f"tensormem.interop.{name}" and module.__all__
    assert name in dir(interop)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = interop.nothing


def test_no_library_is_loaded_before_it_is_used() -> None:
    program = """
import sys
from tensormem import interop
for name in ("arrow", "cupy", "numba", "torch"):
    getattr(interop, name)
print(sorted({"numpy", "torch", "cupy", "numba", "pyarrow"} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_a_missing_library_is_named_with_what_to_install() -> None:
    with pytest.raises(ModuleNotFoundError, match="pip install the-missing-one") as caught:
        load("no_such_library.part", "the-missing-one")
    assert caught.value.name == "no_such_library"


def test_a_library_that_is_there_but_broken_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_library.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        load("broken_library", "broken")
