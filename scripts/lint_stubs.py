"""Compares the stubs of every compiled module with the module itself.

The stubs of a module lie in a folder with its name, one beside each file that it includes. stubtest imports what it
compares, so each of them is given the part of the module that it declares; what none declares is missed in the whole.
"""

import ast
import importlib
import sys
import types
from pathlib import Path

from mypy import stubtest

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "src/tensormem/_core"
OPTIONS = [
    "--concise",
    f"--mypy-config-file={ROOT / 'pyproject.toml'}",
    f"--allowlist={ROOT / 'scripts/stubtest-allowlist.txt'}",
    "--ignore-unused-allowlist",
    "--ignore-disjoint-bases",
]


def _declared(stub: Path) -> set[str]:
    names = set()
    for statement in ast.parse(stub.read_text()).body:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


def _part(module: types.ModuleType, stub: Path) -> types.ModuleType:
    part = types.ModuleType(f"{module.__name__}.{stub.stem}")
    vars(part).update({name: getattr(module, name) for name in _declared(stub) if hasattr(module, name)})
    return part


def main() -> int:
    names = [f"tensormem._core.{whole.parent.name}" for whole in sorted(CORE.glob("*/__init__.pyi"))]
    for name in names:
        module = importlib.import_module(name)
        for stub in sorted((CORE / name.rpartition(".")[2]).glob("[!_]*.pyi")):
            part = _part(module, stub)
            sys.modules[part.__name__] = part
    return stubtest.test_stubs(stubtest.parse_options([*OPTIONS, *names]))


if __name__ == "__main__":
    sys.exit(main())
