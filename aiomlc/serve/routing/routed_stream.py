"""The requests of a router to one server, and the stream of its answer."""

from __future__ import annotations

__all__ = ("RoutedStream", "ServerClient")

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
)
from contextlib import AsyncExitStack, aclosing, contextmanager
from typing import Any, Final, NoReturn, Self, TypeVar, final

import httpx2
import orjson
from anyio import BusyResourceError, CancelScope
from pydantic import BaseModel, ValidationError

from aiomlc.api.protocol.completion import Completion
from aiomlc.errors import BadRequestError, RemoteServerError
from aiomlc.validation.json_values import safe_repr

T = TypeVar("T", bound=BaseModel)

_DATA: Final = b"data: "
_DONE: Final = b"[DONE]"


@final
class ServerClient:
    """One server of a router: its address, and the requests that it answers now."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self.url: str = url
        self.num_running: int = 0  #: Streams that have not ended.
        self._client = client

    async def post(self, path: str, fields: Mapping[str, Any], answer: type[T]) -> T:
        """Send a JSON object, and return the server's answer, which is one of the type `answer`.

        Raises:
            BadRequestError: If the server finds the request invalid.
            RemoteServerError: If the server fails, cannot be reached, or answers something else.
        """
        url = self.url + path
        try:
            response = await self._client.post(url, json=fields)
        except httpx2.HTTPError as error:
            raise _unreachable(url, error) from error

        _check_status(url, response)
        return _validate(url, answer, _parse(url, response.content))

    async def stream(
        self, path: str, fields: Mapping[str, Any], scope: AsyncExitStack
    ) -> AsyncIterator[Completion]:
        """Send a JSON object, and return the chunks of the answer; `scope` ends them.

        Raises:
            BadRequestError: If the server finds the request invalid.
            RemoteServerError: If the server fails, or cannot be reached; also while iterating.
        """
        url = self.url + path
        scope.enter_context(self.busy())
        try:
            response = await scope.enter_async_context(
                self._client.stream("POST", url, json=fields)
            )
            if response.status_code != 200:
                await response.aread()
        except httpx2.HTTPError as error:
            raise _unreachable(url, error) from error

        _check_status(url, response)
        # The generators must end before the response.
        parts = await scope.enter_async_context(aclosing(response.aiter_bytes()))
        lines = await scope.enter_async_context(aclosing(_split_lines(parts)))
        return _Chunks(url, lines)

    @contextmanager
    def busy(self) -> Generator[None]:
        """Count one more running stream in this scope."""
        self.num_running += 1
        try:
            yield
        finally:
            self.num_running -= 1


async def _split_lines(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the lines of an event stream. JSON may contain what `str.splitlines` takes for ends."""
    incomplete: list[bytes] = []
    async for part in parts:
        first, *others = part.split(b"\n")
        incomplete.append(first)
        for line in others:
            yield b"".join(incomplete).removesuffix(b"\r")
            incomplete = [line]


@final
class _Chunks:
    """The chunks in the lines of an event stream."""

    def __init__(self, url: str, lines: AsyncIterator[bytes]) -> None:
        self._url = url
        self._lines = lines

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Completion:
        try:
            async for line in self._lines:
                if not line.startswith(_DATA):
                    continue

                data = line.removeprefix(_DATA)
                fields = None if data == _DONE else _parse(self._url, data)
                if fields is not None and "error" not in fields:
                    return _validate(self._url, Completion, fields)

                async for _ in self._lines:  # So that the connection can be used again.
                    pass

                if fields is None:
                    raise StopAsyncIteration

                _raise_error(self._url, None, fields["error"])
        except httpx2.HTTPError as error:
            raise _unreachable(self._url, error) from error

        raise RemoteServerError("the stream ended before its last event", url=self._url)


@final
class RoutedStream:
    """The chunks of a completion that a router has sent to its servers.

    Iterating makes the requests. Leaving the scope, and `aclose`, end the request; so does an
    exception or a cancellation while iterating. `aclose` also ends the iteration of another task.
    """

    def __init__(
        self, open_chunks: Callable[[AsyncExitStack], Awaitable[AsyncIterator[Completion]]]
    ) -> None:
        self._open_chunks = open_chunks
        self._scope = AsyncExitStack()
        self._chunks: AsyncIterator[Completion] | None = None
        self._is_closed = False
        self._waiting: CancelScope | None = None  # In which a task opens or reads.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Completion:
        if self._is_closed:
            raise StopAsyncIteration

        if self._waiting is not None:
            raise BusyResourceError("iterating over")

        chunk: Completion | None = None
        try:
            with CancelScope() as self._waiting:
                if self._chunks is None:
                    self._chunks = await self._open_chunks(self._scope)

                chunk = await anext(self._chunks)
        finally:
            self._waiting = None
            if chunk is None:
                await self.aclose()

        if chunk is None:  # Another task has closed the stream.
            raise StopAsyncIteration

        return chunk

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the request. Idempotent."""
        self._is_closed = True
        if self._waiting is not None:
            self._waiting.cancel()  # That task ends the request.
            return

        with CancelScope(shield=True):
            await self._scope.aclose()


def _unreachable(url: str, error: httpx2.HTTPError) -> RemoteServerError:
    return RemoteServerError(f"no answer: {type(error).__name__} {error}".rstrip(), url=url)


def _malformed(url: str, answer: object) -> RemoteServerError:
    problem = f"the answer is not what this endpoint returns: {safe_repr(answer)}"
    return RemoteServerError(problem, url=url, status=200)


def _parse(url: str, text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in the answer of a server."""
    try:
        value = orjson.loads(text)
    except ValueError:
        value = text if isinstance(text, str) else text.decode(errors="replace")

    if isinstance(value, dict):
        return value

    raise _malformed(url, value)


def _validate(url: str, kind: type[T], fields: dict[str, Any]) -> T:
    try:
        return kind.model_validate(fields)
    except ValidationError:
        raise _malformed(url, fields) from None


def _check_status(url: str, response: httpx2.Response) -> None:
    if response.status_code == 200:
        return

    try:
        error = orjson.loads(response.content)["error"]
    except (ValueError, KeyError, TypeError):
        error = response.text[:500]

    _raise_error(url, response.status_code, error)


def _raise_error(url: str, status: int | None, error: object) -> NoReturn:
    """Raise the error in the answer of a server, which has OpenAI's form or any other one."""
    fields = error if isinstance(error, dict) else {"message": error}
    message = str(fields.get("message", error))
    param, code = (_string(fields.get(name)) for name in ("param", "code"))
    if status == 400:
        raise BadRequestError(message, param=param)

    answered = "" if status is None else f"answered {status}: "
    raise RemoteServerError(answered + message, url=url, status=status, code=code)


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None
