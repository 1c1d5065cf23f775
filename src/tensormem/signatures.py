"""Owns: the signatures of compiled classes, for `inspect.signature` and `help`. Compiled functions have their own.

They are read from the stubs, which are compared with the modules (scripts/lint_stubs.py), when somebody asks.
Must not know: any class.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from inspect import Parameter, Signature

__all__ = ["StubSignature"]

_COMPILED = "tensormem._core."
_known: dict[type, Signature] = {}


class StubSignature:
    """The `__signature__` of a compiled class and of those derived from it that have no `__init__` of their own.

    >>> import inspect
    >>> import tensormem as tm
    >>> str(inspect.signature(tm.mr.PrefetchResourceAdaptor))
    "(upstream_mr: 'DeviceMemoryResource', device: 'int' = -1) -> None"
    """

    def __get__(self, instance: object, owner: type) -> Signature:
        maker = next(each for each in owner.__mro__ if "__init__" in vars(each) or each is object)
        if maker is object:
            maker = owner  # nobody makes one by hand
        if not maker.__module__.startswith(_COMPILED):
            raise AttributeError("__signature__")
        found = _known.get(maker)
        return found or _known.setdefault(maker, _read(maker))


def _read(maker: type) -> Signature:
    import ast
    import sys
    from inspect import Signature
    from pathlib import Path

    core = sys.modules["tensormem._core"].__file__ or ""
    folder = Path(core).parent / maker.__module__.removeprefix(_COMPILED)
    for stub in sorted(folder.glob("*.pyi")):
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name == maker.__name__:
                made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
                return Signature(_parameters(made[0].args) if made else [], return_annotation=None)
    raise AttributeError("__signature__")


def _parameters(given: ast.arguments) -> list[Parameter]:
    from inspect import Parameter

    named = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(named) - len(given.defaults)) + list(given.defaults)
    found = [_parameter(*each, Parameter.POSITIONAL_OR_KEYWORD) for each in zip(named, defaults, strict=True)]
    if given.vararg is not None:
        found.append(Parameter(given.vararg.arg, Parameter.VAR_POSITIONAL))
    found += [
        _parameter(*each, Parameter.KEYWORD_ONLY) for each in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    return found[1:]


def _parameter(argument: ast.arg, default: ast.expr | None, kind: object) -> Parameter:
    import ast
    from inspect import Parameter

    value = Parameter.empty if default is None else ast.literal_eval(default)
    note = Parameter.empty if argument.annotation is None else ast.unparse(argument.annotation)
    return Parameter(argument.arg, kind, default=value, annotation=note)  # type: ignore[arg-type]
