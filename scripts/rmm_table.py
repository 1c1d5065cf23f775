"""Owns: the table of docs/reference/rmm.md, written from the real RMM: `scripts/rmm_table.py FOLDER`.

FOLDER is where RMM is installed (`pip install --target FOLDER rmm-cu12`). What `dir()` shows of it there, and the
arguments in its stubs, are compared with `tensormem.rmm`; what differs or is missing needs a reason below.
"""

import ast
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MODULES = (
    "rmm",
    "rmm.mr",
    "rmm.mr.experimental",
    "rmm.statistics",
    "rmm.pylibrmm.stream",
    "rmm.pylibrmm.cuda_stream_pool",
    "rmm.pylibrmm.device_buffer",
    "rmm.pylibrmm.utils",
    "rmm.pylibrmm.helper",
    "rmm.allocators.cupy",
    "rmm.allocators.numba",
    "rmm.allocators.torch",
)
_LEAF = "needs a GPU of any vendor, and refuses without one: main memory is `SystemMemoryResource`"
_WAITS = "waits for the stream, so that the bytes of Python may be used or changed at once"
DIFFERENT = {
    "rmm.RMMError": "never raised: the errors are `tensormem.errors`, each also the builtin that RMM raises",
    "rmm.DeviceBuffer": "carries the tag in force; without `mr` the limits in force count it; " + _WAITS,
    "rmm.pylibrmm.device_buffer.DeviceBuffer": "as `rmm.DeviceBuffer`",
    "rmm.reinitialize": "memory that is out stays valid; without a GPU, device 0 is main memory",
    "rmm.is_initialized": "always true",
    "rmm.mr.is_initialized": "always true",
    "rmm.set_logging_level": "the log is Python's logger `tensormem.rmm`; every level can be logged, so nothing warns",
    "rmm.set_flush_level": "as `set_logging_level`",
    "rmm.mr.DeviceMemoryResource": "wraps any resource of tensormem; a stale, double or foreign `deallocate`, or one "
    "of another size, is refused and changes nothing; a foreign stream is waited for where host memory is freed",
    "rmm.mr.UpstreamResourceAdaptor": "takes the resource of tensormem that it stands for, not further arguments",
    "rmm.mr.CudaMemoryResource": _LEAF,
    "rmm.mr.CudaAsyncMemoryResource": _LEAF + "; `enable_ipc` and `enable_fabric` are refused",
    "rmm.mr.ManagedMemoryResource": _LEAF,
    "rmm.mr.PoolMemoryResource": "without `initial_pool_size` nothing is taken before it is needed",
    "rmm.mr.ArenaMemoryResource": "`dump_log_on_failure` is not needed: every shortage carries a report",
    "rmm.mr.FailureCallbackResourceAdaptor": "asked about shortage only",
    "rmm.mr.BinningMemoryResource": "bins are added and replaced before the first block is out",
    "rmm.statistics.Statistics": "a named tuple, which cannot be changed",
    "rmm.pylibrmm.stream.CudaStreamFlags": "a stream never waits for the default stream by itself; events order them",
    "rmm.pylibrmm.stream.Stream": "also takes a stream of tensormem; `on()` and `is_foreign_to()` are ours",
    "rmm.pylibrmm.device_buffer.to_device": _WAITS,
    "rmm.pylibrmm.device_buffer.copy_ptr_to_host": _WAITS,
    "rmm.pylibrmm.device_buffer.copy_host_to_ptr": _WAITS,
    "rmm.pylibrmm.utils.as_stream": "takes streams of other libraries too",
    "rmm.allocators.torch.rmm_torch_allocator": "also honours `record_stream`",
}
MISSING = {
    "rmm.mr.CudaAsyncViewMemoryResource": "takes a pool handle of the CUDA runtime, which is never loaded here",
    "rmm.mr.SamHeadroomMemoryResource": "is for machines whose GPU shares the system's memory; none to try it on",
    "rmm.mr.experimental": "has `CudaAsyncManagedMemoryResource` alone",
    "rmm.mr.experimental.CudaAsyncManagedMemoryResource": "a pool over `ManagedMemoryResource` does the same without "
    "the CUDA runtime's handle",
    "rmm.librmm": "headers for Cython and C++; ours are in `native/`",
}
# Modules that RMM imports for itself, and shows for that reason alone.
_NOT_ITS_OWN = {"warnings", "rmm", "pylibrmm", "librmm", "statistics"}

_REPORT = """
import importlib, inspect, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        module = importlib.import_module(name)
    except Exception as error:
        found[name] = None
        continue
    public = {}
    for each in dir(module):
        value = getattr(module, each)
        if each.startswith("_") or getattr(value, "__module__", "rmm").split(".")[0] not in ("rmm", "enum"):
            continue
        if inspect.ismodule(value) and not (value.__name__.startswith("rmm.") and name in ("rmm", "rmm.mr")):
            continue
        if each in ("P", "T", "TYPE_CHECKING") or (value is None and each == "cupy"):  # its own tools
            continue
        members = [m for m in dir(value) if not m.startswith("_")] if inspect.isclass(value) else []
        public[each] = members
    found[name] = {"names": public, "file": module.__file__}
print(json.dumps(found))
"""


def main(folder: str, target: str = "docs/reference/rmm.md") -> int:
    """Write the table; 1 and a list if something differs without a reason."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r})\n{_REPORT}", *MODULES]
    theirs = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    rows: list[tuple[str, str, str, str]] = []
    for module in MODULES:
        rows += compare(module, theirs[module], Path(folder))
    unexplained = [f"{module}.{name}: {why}" for module, name, verdict, why in rows if verdict == "?"]
    if unexplained:
        print("\n".join(unexplained), file=sys.stderr)
        return 1
    path = Path(target)
    head, marker, _ = path.read_text().partition("<!-- table -->\n")
    path.write_text(head + marker + table(rows))
    return 0


def compare(module: str, found: dict[str, Any] | None, folder: Path) -> list[tuple[str, str, str, str]]:
    """A row for each public name of a module: the module, the name, the verdict, the reason."""
    stubs = arguments_of(folder, module)
    names: dict[str, list[str]] = {each: [] for each in stubs} if found is None else found["names"]
    try:
        ours: Any = importlib.import_module(f"tensormem.{module}")
    except ModuleNotFoundError:
        ours = None
    rows = []
    for name, members in sorted(names.items()):
        full = f"{module}.{name}"
        if module == "rmm" and name in _NOT_ITS_OWN and full not in MISSING:
            continue
        value = getattr(ours, name, None)
        if value is None and not (name == "rmm_torch_allocator" and ours is not None):
            rows.append((module, name, "missing" if full in MISSING else "?", MISSING.get(full, "missing")))
            continue
        gaps = [member for member in members if not _has(value, member)]
        theirs, here = stubs.get(name), own_arguments(value)
        if gaps:
            rows.append((module, name, "?", f"without {', '.join(gaps)}"))
        elif full in DIFFERENT:
            rows.append((module, name, "different", DIFFERENT[full]))
        elif theirs is not None and here is not None and theirs != here:
            rows.append((module, name, "?", f"arguments {here}, RMM's {theirs}"))
        else:
            rows.append((module, name, "same", ""))
    return rows


def _has(value: Any, member: str) -> bool:
    """Whether a class has a member, or its objects have it by its annotations."""
    return hasattr(value, member) or any(member in vars(each).get("__annotations__", {}) for each in value.__mro__)


def arguments_of(folder: Path, module: str) -> dict[str, list[str]]:
    """The names of the arguments of a module's functions and classes, read from its stub or source."""
    base = folder.joinpath(*module.split("."))
    places = [base.with_suffix(".pyi"), base.with_suffix(".py"), base / "__init__.py"]
    if module in ("rmm.mr", "rmm.mr.experimental"):
        stem = "_memory_resource" if module == "rmm.mr" else "experimental"
        places = [folder / "rmm" / "pylibrmm" / "memory_resource" / f"{stem}.pyi"]
    if module == "rmm":
        places = [folder / "rmm" / "rmm.py"]
    found = next(place for place in places if place.is_file())
    result: dict[str, list[str]] = {}
    for node in ast.parse(found.read_text()).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            result[node.name] = _names(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            result[node.name] = _names(made[0])[1:] if made else []
    return result


def _names(node: ast.FunctionDef) -> list[str]:
    return [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def own_arguments(value: Any) -> list[str] | None:
    """The names of the arguments that ours takes."""
    if not callable(value):
        return None
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    return [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]


def table(rows: list[tuple[str, str, str, str]]) -> str:
    """The rows in Markdown, module by module."""
    lines = []
    for module in MODULES:
        own = [row for row in rows if row[0] == module]
        if own:
            lines += ["", f"## `{module}`", "", "| name | | |", "|---|---|---|"]
            lines += [f"| `{name}` | {verdict} | {why} |" for _, name, verdict, why in own]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
