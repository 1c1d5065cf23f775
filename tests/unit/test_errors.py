"""errors.py: the drawn tree is the real one, and every error keeps its facts wherever it goes."""

import builtins
import copy
import doctest
import inspect
import pickle
import re

import pytest

from tensormem import errors
from tensormem.errors import TensormemError


def every_error() -> list[type[TensormemError]]:
    """All classes of the module, found by walking down from the base."""
    found = [TensormemError]
    for kind in found:
        found += [
            child for child in kind.__subclasses__() if child.__module__ == errors.__name__ and child not in found
        ]
    return found


def sample_facts(kind: type[TensormemError]) -> dict[str, int | str]:
    """One distinct value per fact, of the type that the constructor wants."""
    numbers = {name: 70_000 + 1_111 * place for place, name in enumerate(kind.__match_args__)}
    wants = inspect.signature(kind).parameters
    return {name: number if wants[name].annotation == "int" else f"<{name}>" for name, number in numbers.items()}


def make(kind: type[TensormemError], **more: str) -> TensormemError:
    error = kind(**sample_facts(kind), **more)  # type: ignore[arg-type]
    assert isinstance(error, kind)
    return error


all_errors = pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
errors_with_facts = pytest.mark.parametrize(
    "kind", [kind for kind in every_error() if kind.__match_args__], ids=lambda kind: kind.__name__
)


def drawn_tree() -> dict[str, set[str]]:
    """Class name to the names of its bases, as the docstring of the module draws them."""
    bases: dict[str, set[str]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        drawn = re.fullmatch(r" {4}((?:[|` ] {3}|[|`]-- )*)(\w+)(?: \((\w+)\))?( .*)?", line)
        if drawn is None:
            continue
        depth = len(drawn[1]) // 4
        above[depth:] = [drawn[2]]
        also = re.search(r"\.\.\. and (\w+)", drawn[4] or "")
        parents = {above[depth - 1] if depth else "Exception", drawn[3], also and also[1]} - {None}
        bases.setdefault(drawn[2], set()).update(str(parent) for parent in parents)
    return bases


def test_the_drawn_tree_is_the_real_tree() -> None:
    assert drawn_tree() == {kind.__name__: {base.__name__ for base in kind.__bases__} for kind in every_error()}


@all_errors
def test_facts_are_the_parameters_of_the_constructor_in_the_same_order(kind: type[TensormemError]) -> None:
    parameters = [name for name in inspect.signature(kind).parameters if name != "what"]
    assert list(kind.__match_args__) == parameters


@all_errors
def test_facts_are_given_by_position_or_by_name(kind: type[TensormemError]) -> None:
    facts = sample_facts(kind)
    by_position = kind(*facts.values())  # type: ignore[arg-type]
    by_name = make(kind)
    for name, value in facts.items():
        assert getattr(by_position, name) == getattr(by_name, name) == value
    assert str(by_position) == str(by_name)


@all_errors
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_error_keeps_facts_message_and_notes(kind: type[TensormemError], protocol: int) -> None:
    error = make(kind, what="a broken rule")
    error.driver_code = 5
    error.add_note("while loading weights")
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is kind
    assert (vars(again), again.args, str(again), repr(again)) == (vars(error), error.args, str(error), repr(error))
    assert again.__notes__ == ["while loading weights"]


@all_errors
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copied_error_keeps_facts_and_message(kind: type[TensormemError], duplicate: type) -> None:
    error = make(kind, what="a broken rule")
    again = duplicate(error)
    assert again is not error
    assert (type(again), vars(again), str(again)) == (kind, vars(error), str(error))


@all_errors
def test_repr_rebuilds_the_error(kind: type[TensormemError]) -> None:
    error = make(kind, what="a broken rule")
    again = eval(repr(error), vars(errors))
    assert (type(again), vars(again)) == (kind, vars(error))


@errors_with_facts
def test_the_message_names_every_fact_and_what(kind: type[TensormemError]) -> None:
    facts = sample_facts(kind)
    plain, with_what = str(make(kind)), str(make(kind, what="a broken rule"))
    for value in facts.values():
        shown = (value, f"{value:,}", f"{value:#x}") if isinstance(value, int) else (value,)
        assert any(str(way) in plain for way in shown), f"{value} is not in {plain!r}"
    assert "a broken rule" in with_what


@all_errors
def test_messages_have_no_holes(kind: type[TensormemError]) -> None:
    for error in (make(kind), make(kind, what="a broken rule")):
        assert not re.search(r"[{}]|\(\)|: \.|: $|\.\.$", str(error)), str(error)


def test_a_plain_error_without_reason_still_says_what_it_is() -> None:
    assert str(errors.NotSupported()) == "not supported here"
    assert str(errors.InternalError()).startswith("internal error. This is a bug in tensormem")


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.OutOfMemory, MemoryError),
        (errors.OutOfBudget, MemoryError),
        (errors.OutOfPhysicalMemory, MemoryError),
        (errors.OutOfVirtualMemory, MemoryError),
        (errors.InvalidSize, ValueError),
        (errors.InvalidAlignment, ValueError),
        (errors.InvalidDType, TypeError),
        (errors.UnknownDeviceType, BufferError),
        (errors.NoCompatibleComputeDevice, LookupError),
        (errors.NotSupported, NotImplementedError),
        (errors.StillExported, BufferError),
        (errors.StreamMisuse, RuntimeError),
    ],
)
def test_an_error_is_caught_as_the_builtin_it_resembles(kind: type[TensormemError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin) as caught:
        raise make(kind)
    assert isinstance(caught.value, TensormemError)


@pytest.mark.parametrize(
    "name",
    [
        "OutOfBudget",
        "DriverError",
        "StreamMisuse",
        "UseAfterFree",
        "OutOfBounds",
        "ForeignBlock",
        "StillExported",
        "OutOfMemory",
        "InvalidSize",
        "InvalidAlignment",
        "VirtualMemoryError",
    ],
)
def test_what_a_resource_raises_is_a_resource_error(name: str) -> None:
    assert issubclass(getattr(errors, name), errors.ResourceError)


@pytest.mark.parametrize(
    "name",
    [
        "AlreadyMapped",
        "NotMapped",
        "StillMapped",
        "InvalidOffset",
        "InvalidPageSize",
        "OutOfVirtualMemory",
        "OutOfPhysicalMemory",
        "TooManyMappings",
    ],
)
def test_what_virtual_memory_raises_is_a_virtual_memory_error(name: str) -> None:
    assert issubclass(getattr(errors, name), errors.VirtualMemoryError)


def test_no_error_hides_a_builtin_of_the_same_name() -> None:
    assert not {kind.__name__ for kind in every_error()} & set(dir(builtins))


def test_an_error_can_be_matched_by_its_facts() -> None:
    match errors.OutOfBudget(64, 1000, 24, 1024):
        case errors.OutOfBudget(requested, current, remaining, limit):
            assert (requested, current, remaining, limit) == (64, 1000, 24, 1024)


def test_fragmentation_of_an_empty_pool_is_zero() -> None:
    assert errors.OutOfMemory(1, total_free=0, largest_free=0).fragmentation == 0.0
    assert errors.OutOfMemory(1, total_free=100, largest_free=100).fragmentation == 0.0


def test_a_huge_offending_value_does_not_flood_the_message() -> None:
    assert len(str(errors.InvalidSize("9" * 10_000))) < 400


def test_a_missing_fact_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="limit"):
        errors.OutOfBudget(1, 2, 3)  # type: ignore[call-arg]


def test_a_native_failure_becomes_its_error() -> None:
    error = errors.from_failure("UseAfterFree", "deallocate", 0, (7, 0x1000, 0, 0))
    assert isinstance(error, errors.UseAfterFree)
    assert (error.generation, error.address, error.what, error.driver_code) == (7, 0x1000, "deallocate", 0)
    assert "(deallocate)" in str(error)


def test_a_native_driver_error_gets_the_name_and_explanation_of_its_errno() -> None:
    error = errors.from_failure("DriverError", "mmap", 12, (12, 0, 0, 0))
    assert isinstance(error, errors.DriverError)
    assert (error.code, error.name, error.call, error.driver) == (12, "ENOMEM", "mmap", "host")
    assert error.explanation == "Cannot allocate memory"
    assert error.what == "mmap"


def test_an_errno_without_a_name_is_still_a_driver_error() -> None:
    error = errors.from_failure("DriverError", "ioctl", 99_999, (99_999,))
    assert isinstance(error, errors.DriverError)
    assert "99999" in str(error)


def test_the_driver_code_of_an_exact_failure_is_kept_and_shown() -> None:
    error = errors.from_failure("OutOfVirtualMemory", "mmap", 12, (4096, 0, 0, 0))
    assert isinstance(error, errors.OutOfVirtualMemory)
    assert error.driver_code == 12
    assert "(mmap) (driver code 12)" in str(error)


@pytest.mark.parametrize("name", ["OutOfPotatoes", "errno", "from_failure", "TYPE_CHECKING", "Exception", ""])
def test_a_native_failure_of_no_known_class_is_an_internal_error(name: str) -> None:
    error = errors.from_failure(name, "allocate", 0, ())
    assert type(error) is errors.InternalError
    assert repr(name) in str(error)


def test_a_native_failure_with_too_few_facts_is_an_internal_error() -> None:
    error = errors.from_failure("OutOfBudget", "allocate", 0, (1, 2, 3))
    assert type(error) is errors.InternalError
    assert "3 facts where it takes 4" in str(error)


def test_examples_in_the_docstrings_run() -> None:
    ran = doctest.testmod(errors)
    assert ran.attempted > len(every_error())
    assert ran.failed == 0
