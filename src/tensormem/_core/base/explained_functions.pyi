from collections.abc import Callable
from typing import Any, TypeVar, final

_F = TypeVar("_F", bound=Callable[..., Any])

@final
class ExplainedFunction:
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...

def explained_function(function: _F) -> _F: ...
