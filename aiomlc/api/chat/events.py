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
    "TypedChatEvent",
)

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Literal, Self, TypeVar, final

from anyio.lowlevel import checkpoint
from pydantic_core import from_json

from aiomlc.api.chat.aggregate import ChatAccumulator
from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.chat.typed_output import OutputReader
from aiomlc.api.protocol.chat import (
    ChatCompletionChunk,
    ChoiceDeltaToolCall,
    ChunkChoice,
    FinishReason,
)
from aiomlc.api.streams.chunk_stream import AlreadyDone
from aiomlc.api.streams.portal import BlockingStream
from aiomlc.errors import BadRequestError

T = TypeVar("T")
C = TypeVar("C")


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
    is_json: bool = False  #: Whether it is the value of a type.
    type: Literal["content.delta"] = "content.delta"

    @property
    def parsed(self) -> object:
        """The value so far, of plain JSON: what is whole of it, and texts as far as they go.

        None while nothing is, and for an answer that is no value of a type.
        """
        if not self.is_json:
            return None

        try:
            return from_json(self.snapshot, allow_partial="trailing-strings")
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class ContentDoneEvent(Generic[T]):
    """The content is whole."""

    content: str
    parsed: T | None = None  #: The value, of an answer that is one of a type.
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


TypedChatEvent = (
    ChunkEvent
    | ContentDeltaEvent
    | ContentDoneEvent[T]
    | ToolArgumentsDeltaEvent
    | ToolArgumentsDoneEvent
)
ChatEvent = TypedChatEvent[None]


@final
class ChatEventStream(Generic[T, C]):
    """The events of one answer. Leaving the scope early cancels the request.

    Raises:
        BadRequestError: events are asked for outside of the scope.
    """

    def __init__(
        self,
        open_chunks: Callable[[], Awaitable[ChatCompletionStream]],
        reader: OutputReader[T, C],
    ) -> None:
        self._open_chunks = open_chunks
        self._chunks: ChatCompletionStream | None = None
        self._answer = _Answer(reader)

    async def __aenter__(self) -> Self:
        self._chunks = await self._open_chunks()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TypedChatEvent[T]:
        chunks = _entered(self._chunks)
        event = self._answer.next_event()
        if event is not None:
            await checkpoint()
            return event

        return self._answer.add(await chunks.__anext__())

    def close(self) -> AlreadyDone:
        """Cancel what is unfinished. The call does it; what it returns may be awaited."""
        return AlreadyDone() if self._chunks is None else self._chunks.close()

    async def until_done(self) -> Self:
        """Skip the events up to the end."""
        async for _ in self:
            pass

        return self

    async def get_final_completion(self) -> C:
        """The whole answer, once it is there; the events up to its end are skipped.

        Raises:
            IncompleteAnswerError: it was to be of a type, and was cut or refused.
            RequestFailedError: the stream was closed before its end.
        """
        await self.until_done()
        return self._answer.completion()


@final
class ChatEventIterator(Generic[T, C]):
    """The events of one answer, for one thread. Leaving the scope early cancels the request.

    Raises:
        BadRequestError: events are asked for outside of the scope.
    """

    def __init__(
        self,
        open_chunks: Callable[[], BlockingStream[ChatCompletionChunk]],
        reader: OutputReader[T, C],
    ) -> None:
        self._open_chunks = open_chunks
        self._chunks: BlockingStream[ChatCompletionChunk] | None = None
        self._answer = _Answer(reader)

    def __enter__(self) -> Self:
        self._chunks = self._open_chunks()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TypedChatEvent[T]:
        chunks = _entered(self._chunks)
        event = self._answer.next_event()
        return self._answer.add(next(chunks)) if event is None else event

    def close(self) -> None:
        """Cancel what is unfinished."""
        if self._chunks is not None:
            self._chunks.close()

    def until_done(self) -> Self:
        """Skip the events up to the end."""
        for _ in self:
            pass

        return self

    def get_final_completion(self) -> C:
        """The whole answer, as of `ChatEventStream`."""
        self.until_done()
        return self._answer.completion()


def _entered(chunks: T | None) -> T:
    if chunks is None:
        raise BadRequestError("the events are told inside of a scope: enter the stream first")

    return chunks


@final
class _Answer(Generic[T, C]):
    """What one answer has said so far, and the events of the last chunk that nobody has read."""

    def __init__(self, reader: OutputReader[T, C]) -> None:
        self._reader = reader
        self._total = ChatAccumulator()
        self._choices: dict[int, _ChoiceSoFar[T]] = {}
        self._events: Iterator[TypedChatEvent[T]] = iter(())

    def add(self, chunk: ChatCompletionChunk) -> TypedChatEvent[T]:
        """The first event of the next chunk."""
        self._total.add(chunk)
        self._events = self._events_of(chunk.choices)
        return ChunkEvent(chunk)

    def next_event(self) -> TypedChatEvent[T] | None:
        """The next event of the chunk; None if all are read.

        Raises:
            IncompleteAnswerError: a choice was cut, or is no value of the type.
        """
        return next(self._events, None)

    def completion(self) -> C:
        """The whole answer."""
        return self._reader.read(self._total.completion())

    def _events_of(self, choices: Sequence[ChunkChoice]) -> Iterator[TypedChatEvent[T]]:
        for choice in choices:
            if choice.index not in self._choices:
                self._choices[choice.index] = _ChoiceSoFar(self._reader)

            yield from self._choices[choice.index].events(choice)


@final
class _ChoiceSoFar(Generic[T]):
    """What one choice of an answer has said so far."""

    def __init__(self, reader: OutputReader[T, object]) -> None:
        self._reader = reader
        self._content = ""
        self._calls: list[tuple[str, str]] = []  # The name and the arguments of each.

    def events(self, choice: ChunkChoice) -> Iterator[TypedChatEvent[T]]:
        if text := choice.delta.content:
            self._content += text
            yield ContentDeltaEvent(text, self._content, self._reader.is_json)

        for call in choice.delta.tool_calls or ():
            yield from self._call_events(call)

        if choice.finish_reason is not None:
            yield from self._done_events(choice.finish_reason)

    def _call_events(self, call: ChoiceDeltaToolCall) -> Iterator[TypedChatEvent[T]]:
        if call.index == len(self._calls):
            yield from self._call_done()
            self._calls.append((call.function.name or "", ""))

        name, arguments = self._calls[call.index]
        if delta := call.function.arguments:
            arguments += delta
            self._calls[call.index] = name, arguments
            yield ToolArgumentsDeltaEvent(call.index, name, delta, arguments)

    def _done_events(self, finish_reason: FinishReason) -> Iterator[TypedChatEvent[T]]:
        if self._content:
            is_value = not self._calls
            parsed = self._reader.value(self._content, finish_reason) if is_value else None
            yield ContentDoneEvent(self._content, parsed)

        yield from self._call_done()

    def _call_done(self) -> Iterator[TypedChatEvent[T]]:
        if self._calls:
            name, arguments = self._calls[-1]
            yield ToolArgumentsDoneEvent(len(self._calls) - 1, name, arguments)
