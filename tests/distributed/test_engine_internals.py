"""What we need of the engines beyond their public interfaces: all of it is used in one file for each, and is there."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src/tensormem/distributed"
# How their inner parts are written in a source; only `internals.py` may.
PRIVATE = {
    "dask": r"client\._|worker\.(handlers|execute|state|data|metrics|loop|plugin_add)\b|state_machine|\.evict\(\)",
    "ray": r"ray\._|_common|_private|__ray_call__|experimental\.rdt|_ray_system",
}


@pytest.mark.parametrize("engine", PRIVATE)
def test_only_one_file_knows_the_inner_parts_of_an_engine(engine: str) -> None:
    users = {
        path.name
        for path in (SOURCES / engine).glob("*.py")
        for line in path.read_text().splitlines()
        if re.search(PRIVATE[engine], line.partition("#")[0])
    }
    assert users == {"internals.py"}


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_dask_has_what_we_need_of_it() -> None:
    distributed: Any = pytest.importorskip("distributed")
    assert parameters(distributed.Worker.execute) == ["self", "key", "stimulus_id"]
    assert parameters(distributed.Worker.get_data)[:5] == ["self", "comm", "keys", "who", "serializers"]
    assert parameters(distributed.Worker.plugin_add)[:3] == ["self", "plugin", "name"]
    assert {"on_error", "workers"} <= set(parameters(distributed.Client._run))
    assert "packages" in parameters(distributed.Client.get_versions)
    events: Any = import_module("distributed.worker_state_machine")
    assert {"key", "run_id", "stimulus_id"} <= set(parameters(events.ExecuteFailureEvent.from_exception))
    assert {"run_id", "dependencies", "key"} <= set(events.TaskState.__dataclass_fields__)
    spill: Any = import_module("distributed.spill")
    assert all(hasattr(spill.SpillBuffer, name) for name in ("evict", "spilled_total"))
    arrays: Any = import_module("distributed.protocol.numpy")
    assert callable(arrays.serialize_numpy_ndarray) and callable(arrays.deserialize_numpy_ndarray)


def test_ray_has_what_we_need_of_it() -> None:
    pytest.importorskip("ray")
    transports: Any = import_module("ray.experimental")
    needed = ("register_tensor_transport", "TensorTransportManager", "TensorTransportMetadata", "CommunicatorMetadata")
    assert all(hasattr(transports, name) for name in needed)
    manager: Any = import_module("ray.experimental.rdt.rdt_manager")
    assert hasattr(manager.RDTManager, "get_rdt_metadata")
    util: Any = import_module("ray.experimental.rdt.util")
    assert isinstance(util.transport_manager_info, dict) and callable(util.get_tensor_transport_manager)
    assert callable(import_module("ray._common.utils").load_class)
    abstract = transports.TensorTransportManager.__abstractmethods__
    from tensormem.distributed.ray.transport import TensormemTransport

    assert abstract <= set(vars(TensormemTransport)), "the contract of a transport has grown"
