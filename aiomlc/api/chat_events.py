"""`engine.chat.completions.stream`: an answer as events, which know what has been said so far."""

from __future__ import annotations

__all__ = (
    "ChatEvent",
    "ChatEventIterator",
    "ChatEventStream",
    "ChunkEvent",
    "ContentDeltaEvent",
    "ContentDoneEvent",
    "ToolArgumentsDeltaEvent",
    "ToolArgumentsDoneEvent",
)

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, final

from anyio.lowlevel import checkpoint

from aiomlc.api.aggregate import ChatSum
from aiomlc.api.chat_stream import ChatCompletionStream
from aiomlc.api.portal import BlockingStream
from aiomlc.api.protocol.chat import ChatCompletion, ChatCompletionChunk, ChoiceDeltaToolCall


@dataclass(frozen=True, slots=True)
class ChunkEvent:
    """A chunk came; the events that follow say what it means."""

    chunk: ChatCompletionChunk
    type: Literal["chunk"] = "chunk"


@dataclass(frozen=True, slots=True)
class ContentDeltaEvent:
    """The content grew."""

    delta: str
    snapshot: str  #: The content so far.
    type: Literal["content.delta"] = "content.delta"


@dataclass(frozen=True, slots=True)
class ContentDoneEvent:
    """The content is whole."""

    content: str
    type: Literal["content.done"] = "content.done"


@dataclass(frozen=True, slots=True)
class ToolArgumentsDeltaEvent:
    """The arguments of a call grew."""

    index: int
    name: str
    arguments_delta: str
    arguments: str  #: The arguments so far, as JSON text.
    type: Literal["tool_calls.function.arguments.delta"] = "tool_calls.function.arguments.delta"


@dataclass(frozen=True, slots=True)
class ToolArgumentsDoneEvent:
    """A call is whole."""

    index: int
    name: str
    arguments: str
    type: Literal["tool_calls.function.arguments.done"] = "tool_calls.function.arguments.done"


ChatEvent = (
    ChunkEvent
    | ContentDeltaEvent
    | ContentDoneEvent
    | ToolArgumentsDeltaEvent
    | ToolArgumentsDoneEvent
)


@final
class ChatEventStream:
    """The events of one answer. Leaving the scope early cancels the request."""

    def __init__(self, open_chunks: Callable[[], Awaitable[ChatCompletionStream]]) -> None:
        self._open_chunks = open_chunks
        self._chunks: ChatCompletionStream | None = None
        self._answer = _Answer()
        self._ready: deque[ChatEvent] = deque()

    async def __aenter__(self) -> Self:
        self._chunks = await self._open_chunks()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._chunks is not None, "set by __aenter__"
        self._chunks.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatEvent:
        assert self._chunks is not None, "the stream is a context manager: enter it first"
        if self._ready:
            await checkpoint()
        else:
            self._ready.extend(self._answer.events(await self._chunks.__anext__()))

        return self._ready.popleft()

    async def get_final_completion(self) -> ChatCompletion:
        """The whole answer, once it is there; the events up to its end are skipped.

        Raises:
            RequestFailedError: the stream was closed before its end.
        """
        async for _ in self:
            pass

        return self._answer.total.completion()


@final
class ChatEventIterator:
    """The events of one answer, for one thread. Leaving the scope early cancels the request."""

    def __init__(self, open_chunks: Callable[[], BlockingStream[ChatCompletionChunk]]) -> None:
        self._open_chunks = open_chunks
        self._chunks: BlockingStream[ChatCompletionChunk] | None = None
        self._answer = _Answer()
        self._ready: deque[ChatEvent] = deque()

    def __enter__(self) -> Self:
        self._chunks = self._open_chunks()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._chunks is not None, "set by __enter__"
        self._chunks.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChatEvent:
        assert self._chunks is not None, "the stream is a context manager: enter it first"
        if not self._ready:
            self._ready.extend(self._answer.events(next(self._chunks)))

        return self._ready.popleft()

    def get_final_completion(self) -> ChatCompletion:
        """The whole answer, as of `ChatEventStream`."""
        for _ in self:
            pass

        return self._answer.total.completion()


@final
class _Answer:
    """What one answer has said so far."""

    def __init__(self) -> None:
        self.total = ChatSum()
        self._content = ""
        self._calls: list[tuple[str, str]] = []  # The name and the arguments of each.

    def events(self, chunk: ChatCompletionChunk) -> Iterator[ChatEvent]:
        self.total.add(chunk)
        yield ChunkEvent(chunk)
        for choice in chunk.choices:
            if text := choice.delta.content:
                self._content += text
                yield ContentDeltaEvent(text, self._content)

            for call in choice.delta.tool_calls or ():
                yield from self._call_events(call)

            if choice.finish_reason is not None:
                yield from self._done_events()

    def _call_events(self, call: ChoiceDeltaToolCall) -> Iterator[ChatEvent]:
        if call.index == len(self._calls):
            yield from self._call_done()
            self._calls.append((call.function.name or "", ""))

        name, arguments = self._calls[call.index]
        if delta := call.function.arguments:
            arguments += delta
            self._calls[call.index] = name, arguments
            yield ToolArgumentsDeltaEvent(call.index, name, delta, arguments)

    def _done_events(self) -> Iterator[ChatEvent]:
        if self._content:
            yield ContentDoneEvent(self._content)

        yield from self._call_done()

    def _call_done(self) -> Iterator[ChatEvent]:
        if self._calls:
            name, arguments = self._calls[-1]
            yield ToolArgumentsDoneEvent(len(self._calls) - 1, name, arguments)
