"""`inspect.signature`, and with it `help` and editors, know every public callable, compiled or not; and a call that
misspells a keyword is told which function it called, and the nearest word."""

import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

import tensormem as tm
from support.constructions import HOST
from support.public_names import CALLABLES, find, is_offered
from tensormem import mr
from tensormem.misspellings import nearest

# Whose arguments are somebody else's, and not ours to name.
PASSES_ON = {
    "tensormem:StreamId": "int's",
    "tensormem.distributed.dask:HandOverPlugin.transition": "Dask's: what its scheduler tells a plugin",
    "tensormem.rmm:register_reinitialize_hook": "RMM's: those of the function that is registered",
    "tensormem.rmm.rmm:register_reinitialize_hook": "the same",
    "tensormem.rmm.allocators.numba:RMMNumbaManager": "Numba's: it makes its managers itself",
}


@pytest.mark.parametrize("full", CALLABLES)
def test_a_public_callable_has_a_signature_without_nameless_options(full: str) -> None:
    signature = inspect.signature(CALLABLES[full])
    nameless = [each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]
    assert not nameless or full in PASSES_ON, signature


def test_those_that_pass_arguments_on_do() -> None:
    for full in PASSES_ON:
        parameters = inspect.signature(find(full)).parameters.values()
        assert any(each.kind is each.VAR_KEYWORD for each in parameters), full


# --- Misspelt keywords ---


def _keywords(value: Any) -> list[inspect.Parameter]:
    parameters = inspect.signature(value).parameters.values()
    return [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]


def _misspelt(name: str) -> str:
    return f"{name[:-2]}{name[-1]}" if len(name) > 3 else f"{name}{name[-1]}"


def _refusal(call: Any, keywords: list[inspect.Parameter], wrong: str) -> str:
    needed = {each.name: None for each in keywords if each.default is each.empty}
    first = [None for each in inspect.signature(call).parameters.values() if each.kind is each.POSITIONAL_ONLY]
    with pytest.raises(TypeError) as refused:
        call(*first, **needed, **{wrong: None})
    return str(refused.value)


def _is_asked(full: str) -> bool:
    """Methods are asked below. What a package does not offer under its own name is for its own use."""
    value = CALLABLES[full]
    if not is_offered(full) or full in PASSES_ON or inspect.iscoroutinefunction(value):
        return False
    return bool(_keywords(value)) and (not isinstance(value, type) or "__init__" in vars(value))


@pytest.mark.parametrize("full", [full for full in CALLABLES if _is_asked(full)])
def test_a_misspelt_keyword_names_the_function_and_the_nearest_word(full: str) -> None:
    value = CALLABLES[full]
    keywords = _keywords(value)
    right = max((each.name for each in keywords), key=len)
    wrong = _misspelt(right)
    text = _refusal(value, keywords, wrong)
    name = value.__qualname__ if not isinstance(value, type) else f"{value.__name__}."
    assert name.rpartition(".")[2] in text and f"unexpected keyword argument '{wrong}'" in text
    assert f"Did you mean '{nearest(wrong, [each.name for each in keywords])}'?" in text


@pytest.mark.parametrize("cls", HOST, ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_a_misspelt_keyword_of_a_method_names_it_and_the_nearest_word(cls: Any) -> None:
    args, kwargs = HOST[cls]()
    made = cls(*args, **kwargs)
    for name in (name for name in dir(cls) if not name.startswith("_")):
        method = getattr(made, name, None)
        if not inspect.isroutine(method) or not getattr(method, "__module__", "tensormem").startswith("tensormem"):
            continue
        keywords = _keywords(method)
        if len(keywords) < 2 or inspect.iscoroutinefunction(method):
            continue
        wrong = _misspelt(keywords[-1].name)
        text = _refusal(method, keywords, wrong)
        assert f".{name}() got an unexpected keyword argument '{wrong}'. Did you mean " in text


def test_what_is_like_nothing_is_told_what_there_is() -> None:
    with pytest.raises(TypeError, match=r"^zeros\(\) got .* 'colour'. It takes 'shape', 'dtype', 'space', "):
        tm.zeros(3, colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^from_buffer\(\) got .* 'colour'"):
        tm.from_buffer(b"", colour="red")  # type: ignore[call-arg]


def test_a_keyword_that_a_callback_refuses_is_not_blamed_on_the_caller() -> None:
    class Sly:
        def __dlpack__(self, *, stream: object = None) -> object:
            return self.where(devce=1)  # type: ignore[call-arg]

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.where(1)

        def where(self, device: int) -> tuple[int, int]:
            return device, 0

    with pytest.raises(TypeError, match=r"where\(\) got an unexpected keyword argument 'devce'") as refused:
        tm.from_dlpack(Sly())
    assert sys.version_info >= (3, 13) or "Did you mean" not in str(refused.value)


def test_a_traceback_names_the_compiled_function_that_was_left() -> None:
    """Files of one module have many lines of one number, by which Cython keeps what it shows."""
    calls: dict[str, Callable[[], object]] = {
        "PoolMemoryResource.__init__": lambda: mr.PoolMemoryResource(mr.HostMemoryResource(), initial=1),  # type: ignore[call-arg]
        "PhysicalLimit.__cinit__": lambda: tm.pools.PhysicalLimit(limt=1),  # type: ignore[call-arg]
        "Tensor.to": lambda: tm.zeros(3).to(1j),  # type: ignore[arg-type]
        "Tensor.__getitem__": lambda: tm.zeros(3)["x"],  # type: ignore[index]
        ".full": lambda: tm.full(3, "x"),
    }
    for name, call in calls.items():
        with pytest.raises((TypeError, ValueError, IndexError)) as refused:
            call()
        assert any(entry.name.endswith(name) for entry in refused.traceback), [e.name for e in refused.traceback]


def test_explained_functions_are_functions_to_whoever_looks() -> None:
    assert tm.image.__name__ == "image" and inspect.isroutine(vars(tm)["image"]) and tm.image.__doc__ is not None
    assert pickle.loads(pickle.dumps(tm.image))(4, 4).width == 4
    assert pickle.loads(pickle.dumps(tm.units.parse_size)) is tm.units.parse_size
    with pytest.raises(TypeError) as refused:
        tm.image("4", 4)  # type: ignore[arg-type]
    assert refused.traceback[1].name == "image"  # nothing stands between the caller and the function


# --- Compiled classes ---

MADE_BY_HAND = [
    each
    for each in vars(mr).values()
    if isinstance(each, type)
    and each.__module__.startswith("tensormem._core")
    and "__init__" in vars(each)
    and not issubclass(each, tuple | str)
]


@pytest.mark.parametrize("cls", MADE_BY_HAND)
def test_a_compiled_class_takes_what_its_signature_says_and_nothing_else(cls: Any) -> None:
    names = set(inspect.signature(cls).parameters)
    with pytest.raises(TypeError, match=r"spce|argument|made"):
        cls(**dict.fromkeys(names, None), spce=None)


def test_a_class_of_a_user_has_its_own_signature() -> None:
    class Named(mr.HostMemoryResource):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class Plain(mr.HostMemoryResource):
        pass

    assert list(inspect.signature(Named).parameters) == ["name"]
    assert inspect.signature(Plain) == inspect.signature(mr.HostMemoryResource)
    assert list(inspect.signature(mr.PrefetchResourceAdaptor).parameters) == ["upstream_mr", "device"]
    assert inspect.signature(mr.RingSink).parameters["capacity"].default == 65536
