"""Workers that are set up where platform engineers look: by Dask's configuration, its command line and its preload
module; and a client that is told which worker lacks tensormem.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tensormem as tm
from support.clusters import dask_cluster, eventually
from tensormem import errors
from tensormem.distributed import Declaration, cluster_stats
from tensormem.distributed import dask as tm_dask
from tensormem.distributed.dask.configuration import configured_declaration

dask: Any = pytest.importorskip("dask")
pytest.importorskip("distributed")

MIB = 1 << 20
HIDES = """
import importlib.abc, importlib.metadata, sys
import importlib_metadata  # what Dask asks

class Hides(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "tensormem":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def hide(module, whole, all_of_them):
    @classmethod
    def from_name(cls, name):
        if name == "tensormem":
            raise module.PackageNotFoundError(name)
        return whole(cls, name)

    module.Distribution.from_name = from_name
    module.distributions = lambda **options: (
        each for each in all_of_them(**options) if each.metadata["Name"] != "tensormem"
    )

sys.meta_path.insert(0, Hides())
for module in (importlib.metadata, importlib_metadata):
    hide(module, module.Distribution.from_name.__func__, module.distributions)
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with dask_cluster(workers=0) as made:
        yield made


def workers_of(client: Any) -> set[str]:
    return set(client.scheduler_info(-1)["workers"])


@contextmanager
def worker(client: Any, folder: Path, *arguments: str, **variables: str) -> Iterator[str]:
    """A process of `dask worker`, as somebody starts it who is no client."""
    before = workers_of(client)
    command = [sys.executable, "-m", "dask", "worker", client.scheduler.address, "--no-nanny", "--no-dashboard"]
    process = subprocess.Popen(
        [*command, "--nthreads", "1", "--local-directory", str(folder), *arguments],
        env={**os.environ, **variables},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: process.poll() is not None or workers_of(client) != before, "the worker has come")
        (address,) = workers_of(client) - before
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=60)
        eventually(lambda: workers_of(client) == before, "the worker has gone")


def test_the_command_line_of_a_worker_declares_what_it_has(client: Any, tmp_path: Path) -> None:
    preload = ("--preload", "tensormem.distributed.dask.preload", "--tensormem", "budget=64MiB,limit=32MiB")
    with worker(client, tmp_path, *preload):
        (row,) = cluster_stats(client).rows
        assert (row.budget, row.limit) == (64 * MIB, 32 * MIB)


def test_variables_of_dask_declare_it_too(client: Any, tmp_path: Path) -> None:
    declared = {"DASK_TENSORMEM__BUDGET": "48MiB", "DASK_TENSORMEM__JOB": "train", "DASK_TENSORMEM__TAGS": "True"}
    with worker(client, tmp_path, "--preload", "tensormem.distributed.dask.preload", **declared):
        (row,) = cluster_stats(client).rows
        assert (row.budget, row.job) == (48 * MIB, "train")


def test_a_file_declares_for_the_client_who_sets_up_everybody(client: Any, tmp_path: Path) -> None:
    (tmp_path / "tensormem.yaml").write_text("tensormem:\n  budget: 24MiB\n  keep: 0\n")
    with worker(client, tmp_path):
        found = dask.config.collect([str(tmp_path)], env={})
        with dask.config.set(found):
            tm_dask.setup(client)
        (row,) = cluster_stats(client).rows
        assert row.budget == 24 * MIB
        client.unregister_worker_plugin("tensormem")


def test_a_worker_without_tensormem_is_named_at_the_client(client: Any, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDES)
    with (
        worker(client, tmp_path, PYTHONPATH=str(tmp_path)) as address,
        pytest.raises(errors.DistributedError, match=f"tensormem is not installed on {address}: install"),
    ):
        tm_dask.setup(client, Declaration(budget="24MiB"))


def test_the_function_keeps_its_name_whoever_imports_its_module_first() -> None:
    import tensormem.distributed.dask.cluster_setup as module

    assert repr(tm_dask.setup) == repr(module.setup)


def test_what_is_wrong_with_a_configuration_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for section, says in (
        ({"budgett": "1GiB"}, "has no 'budgett'"),
        ({"budget": "lots"}, "lots"),
        ("8GiB", "has fields"),
    ):
        with dask.config.set({"tensormem": section}), pytest.raises(errors.InvalidArgument, match=says):
            configured_declaration()
    with pytest.raises(errors.DistributedError, match="nothing is declared"):
        configured_declaration()
    monkeypatch.setitem(tm.config._current, "config", tm.config.Config(declaration="budget=2MiB"))
    assert configured_declaration().budget == 2 * MIB
