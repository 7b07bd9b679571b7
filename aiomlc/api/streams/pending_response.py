"""A response that is not there before `await`, and says so."""

from __future__ import annotations

__all__ = ("PendingResponse", "returns_pending")

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar, final

from aiomlc.runtime.concurrency.misuse import explains

_Parameters = ParamSpec("_Parameters")
_Response = TypeVar("_Response")
_STREAM_IT: Final = "the request has no stream: pass stream=True, or await the response"
_AWAIT_IT: Final = "it is the coroutine of a request: write `await` before the call"


@explains(
    choices=_AWAIT_IT, data=_AWAIT_IT, output=_AWAIT_IT, output_text=_AWAIT_IT, usage=_AWAIT_IT
)
@final
class PendingResponse(Coroutine[Any, Any, _Response]):
    """The coroutine of a request, whose attributes are not those of the response.

    If it is never awaited, Python warns of the wrapped coroutine by name.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, _Response]) -> None:
        self._coroutine = coroutine

    def __repr__(self) -> str:
        return f"<PendingResponse of {self._coroutine!r}>"

    def __await__(self) -> Generator[Any, Any, _Response]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:  # noqa: ANN401
        """Start or continue the request."""
        return self._coroutine.send(value)

    def throw(self, *exc_info: Any) -> Any:  # noqa: ANN401
        """Raise an exception where the request waits."""
        return self._coroutine.throw(*exc_info)

    def close(self) -> None:
        """End the request."""
        self._coroutine.close()

    if not TYPE_CHECKING:

        def __aiter__(self) -> NoReturn:
            raise TypeError(_STREAM_IT)

        async def __aenter__(self) -> NoReturn:
            raise TypeError(_STREAM_IT)

        async def __aexit__(self, *exc_info: object) -> None:
            raise NotImplementedError


def returns_pending(
    method: Callable[_Parameters, Coroutine[Any, Any, _Response]],
) -> Callable[_Parameters, Coroutine[Any, Any, _Response]]:
    """Let a coroutine function return a `PendingResponse`."""

    @wraps(method)
    def call(*args: _Parameters.args, **fields: _Parameters.kwargs) -> PendingResponse[_Response]:
        return PendingResponse(method(*args, **fields))

    return call
