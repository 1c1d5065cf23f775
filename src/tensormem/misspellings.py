"""Owns: the nearest word for a misspelt one, and the message of a call that misspells a keyword.

Compiled functions ask here when they refuse a keyword (`_core/misspellings.hpp`), and so do public functions written in
Python where the interpreter does not do it itself (`tensormem.public_functions`). Must not know: any function.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["explain", "nearest"]

_REFUSED = "() got an unexpected keyword argument "
_COMPILED = "tensormem._core."
_LIKE_ENOUGH = 0.6


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The one of `words` that `word` was most likely meant to be; None if none is near.

    >>> nearest("spce", ["shape", "space"]), nearest("initial", ["initial_pool_size", "upstream"]), nearest("x", ["y"])
    ('space', 'initial_pool_size', None)
    """
    from difflib import SequenceMatcher  # slow to import, and hardly ever needed

    def likeness(candidate: str) -> float:
        whole = SequenceMatcher(None, word, candidate).ratio()
        beginning = SequenceMatcher(None, word, candidate[: len(word)]).ratio() if len(word) > 2 else 0.0
        return max(whole, 0.9 * beginning)

    best = max(words, key=likeness, default=None)
    return best if best is not None and likeness(best) >= _LIKE_ENOUGH else None


def explain(error: TypeError, subject: Any) -> None:
    """Name the function and the nearest keyword in `error`, if it says that `subject` does not take a keyword.

    `subject` is a function, or the full name of a compiled one. The words are those of Python 3.13.

    >>> def make(shape, space): ...
    >>> error = TypeError("make() got an unexpected keyword argument 'spce'")
    >>> explain(error, make)
    >>> str(error)
    "make() got an unexpected keyword argument 'spce'. Did you mean 'space'?"
    """
    import inspect

    text = str(error)
    name, found, rest = text.partition(_REFUSED)
    compiled = isinstance(subject, str)
    full = _without_module(subject) if compiled else inspect.unwrap(subject).__qualname__
    if not found or name != (full.rpartition(".")[2] if compiled else full):
        return
    full = full.replace("__cinit__", "__init__")
    by_keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    target: Any = _compiled(subject) if compiled else subject
    known = [each.name for each in inspect.signature(target).parameters.values() if each.kind in by_keyword]
    known = [each for each in known if each != "self"]
    word = rest.strip("'")
    if not word.isidentifier() or word in known:
        return
    likely = nearest(word, known)
    hint = f"Did you mean {likely!r}?" if likely else f"It takes {', '.join(map(repr, known)) or 'no keyword'}."
    error.args = (f"{full}{_REFUSED}{rest}. {hint}",)


def _without_module(full: str) -> str:
    """Of `tensormem._core.tensor.Tensor.to`, what the user knows: `Tensor.to`."""
    return full.removeprefix(_COMPILED).partition(".")[2]


def _compiled(full: str) -> Any:
    """The compiled function of this name; of a constructor, its class."""
    import sys

    module, _, path = full.removeprefix(_COMPILED).partition(".")
    value: Any = sys.modules[_COMPILED + module]
    for part in path.split("."):
        if part not in ("__init__", "__cinit__"):
            value = getattr(value, part)
    return value
