"""Owns: making Dask know tensors without anybody importing us: Dask calls `register` by entry point when it starts.

Dask has entry points for sizes alone, and they run before `distributed` has serializers; so the serializers follow when
`distributed.protocol` has been imported. Must not know: how tensors are serialized.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

__all__ = ["register", "register_serializers"]

_PROTOCOL = "distributed.protocol"
_ARRAYS = "distributed.protocol.numpy"


def register(sizeof: Any) -> None:
    """What the entry point `dask.sizeof` names: sizes of tensors at once, serializers as soon as there can be any."""

    @sizeof.register_lazy("tensormem")  # type: ignore[untyped-decorator]
    def register_sizes() -> None:
        from tensormem._core import Tensor

        sizeof.register(Tensor)(_nbytes)

    _when_imported(_PROTOCOL, register_serializers)


def _nbytes(tensor: Any) -> int:
    return int(tensor.nbytes) + 200


def register_serializers() -> None:
    """Tell `distributed` of tensors: in its own family for every type, and as a family of their own, "tensormem"."""
    from distributed.protocol import dask_deserialize, dask_serialize, register_serialization_family

    register_serialization_family("tensormem", _family_dumps, _family_loads)

    @dask_serialize.register_lazy("tensormem")  # type: ignore[untyped-decorator]
    @dask_deserialize.register_lazy("tensormem")  # type: ignore[untyped-decorator]
    def register_type() -> None:
        from tensormem._core import Tensor
        from tensormem.distributed.dask import serializers

        dask_serialize.register(Tensor)(serializers.serialize)
        dask_deserialize.register(Tensor)(serializers.deserialize)

    _when_imported(_ARRAYS, _register_arrays)


def _register_arrays() -> None:
    """In the place of Dask's own, which is called for all arrays that are not ours."""
    import numpy
    from distributed.protocol import dask_deserialize, dask_serialize

    from tensormem.distributed.dask import arrays

    dask_serialize.register(numpy.ndarray)(arrays.serialize_array)
    dask_deserialize.register(numpy.ndarray)(arrays.deserialize_array)


def _when_imported(module: str, then: Callable[[], None]) -> None:
    """Call it as soon as a module has been imported: now, or then."""
    if module in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _AfterImport(module, then))


def _family_dumps(value: Any, context: Any = None) -> tuple[dict[str, Any], list[Any]]:
    from tensormem.distributed.dask import serializers

    return serializers.family_dumps(value, context)


def _family_loads(header: dict[str, Any], frames: list[Any]) -> Any:
    from tensormem.distributed.dask import serializers

    return serializers.deserialize(header, frames)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls something once, when a module has been imported; then it is gone from the path."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own spec, with a loader that goes on where its own ends."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._then()
