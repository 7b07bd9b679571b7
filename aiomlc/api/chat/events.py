"""`engine.chat.completions.stream`: a completion as events that carry the text so far."""

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
from aiomlc.runtime.concurrency.misuse import IterationOnly, not_entered
from aiomlc.runtime.concurrency.receive_stream import ReceiveStream

T = TypeVar("T")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class ChunkEvent:
    """A received chunk; the events derived from this chunk follow."""

    chunk: ChatCompletionChunk
    type: Literal["chunk"] = "chunk"


@dataclass(frozen=True, slots=True)
class ContentDeltaEvent:
    """New text of the content."""

    delta: str
    snapshot: str  #: The content so far.
    is_json: bool = False  #: Whether the content is the JSON of a typed value.
    type: Literal["content.delta"] = "content.delta"

    @property
    def parsed(self) -> object:
        """The JSON value parsed from the partial content, including strings that are cut off.

        None while nothing can be parsed, and always None if the request has no output type.
        """
        if not self.is_json:
            return None

        try:
            return from_json(self.snapshot, allow_partial="trailing-strings")
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class ContentDoneEvent(Generic[T]):
    """The complete content."""

    content: str
    parsed: T | None = None  #: The typed value; None if the request has no output type.
    type: Literal["content.done"] = "content.done"


@dataclass(frozen=True, slots=True)
class ToolArgumentsDeltaEvent:
    """New text of the arguments of a tool call."""

    index: int
    name: str
    arguments_delta: str
    arguments: str  #: The arguments so far, as JSON text.
    type: Literal["tool_calls.function.arguments.delta"] = "tool_calls.function.arguments.delta"


@dataclass(frozen=True, slots=True)
class ToolArgumentsDoneEvent:
    """A complete tool call."""

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
class ChatEventStream(ReceiveStream[TypedChatEvent[T]], Generic[T, C]):
    """The events of one chat completion: async context manager, async iterator and anyio stream.

    Entering the scope submits the request. Iteration yields a `ChunkEvent` for each chunk,
    followed by the events derived from this chunk. Leaving the scope, or `close`, cancels the
    request unless it has finished.

    Raises:
        BadRequestError: If events are read before the scope is entered.
        IncompleteAnswerError: If a typed value was cut off or failed validation; raised in place
            of its `ContentDoneEvent`.
        AiomlcError: As `AsyncCompletions.create`.
    """

    def __init__(
        self,
        open_chunks: Callable[[], Awaitable[ChatCompletionStream]],
        reader: OutputReader[T, C],
    ) -> None:
        self._open_chunks = open_chunks
        self._chunks: ChatCompletionStream | None = None
        self._builder = _EventBuilder(reader)

    async def __aenter__(self) -> Self:
        self._chunks = await self._open_chunks()
        return self

    async def __anext__(self) -> TypedChatEvent[T]:
        chunks = _require_entered(self._chunks, "async with")
        event = self._builder.next_event()
        if event is not None:
            await checkpoint()
            return event

        return self._builder.add(await chunks.__anext__())

    def close(self) -> AlreadyDone:
        """Cancel the request unless it has finished.

        The call itself closes the stream; awaiting the returned value is optional.
        """
        self._is_closed = True
        return AlreadyDone() if self._chunks is None else self._chunks.close()

    async def until_done(self) -> Self:
        """Consume all remaining events."""
        async for _ in self:
            pass

        return self

    async def get_final_completion(self) -> C:
        """Consume all remaining events and return the completion.

        Raises:
            IncompleteAnswerError: If a typed value was cut off or failed validation.
            RequestFailedError: If the stream was closed before the completion was finished.
        """
        await self.until_done()
        return self._builder.completion()


@final
class ChatEventIterator(IterationOnly, Generic[T, C]):
    """The events of one chat completion for blocking code; for use by one thread.

    The blocking counterpart of `ChatEventStream`, with the same events and errors.
    """

    def __init__(
        self,
        open_chunks: Callable[[], BlockingStream[ChatCompletionChunk]],
        reader: OutputReader[T, C],
    ) -> None:
        self._open_chunks = open_chunks
        self._chunks: BlockingStream[ChatCompletionChunk] | None = None
        self._builder = _EventBuilder(reader)

    def __enter__(self) -> Self:
        self._chunks = self._open_chunks()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TypedChatEvent[T]:
        chunks = _require_entered(self._chunks, "with")
        event = self._builder.next_event()
        return self._builder.add(next(chunks)) if event is None else event

    def close(self) -> None:
        """Cancel the request unless it has finished."""
        if self._chunks is not None:
            self._chunks.close()

    def until_done(self) -> Self:
        """Consume all remaining events."""
        for _ in self:
            pass

        return self

    def get_final_completion(self) -> C:
        """Consume all remaining events and return the completion.

        Raises:
            IncompleteAnswerError: If a typed value was cut off or failed validation.
            RequestFailedError: If the stream was closed before the completion was finished.
        """
        self.until_done()
        return self._builder.completion()


def _require_entered(chunks: T | None, keyword: str) -> T:
    if chunks is None:
        raise not_entered(f"{keyword} engine.chat.completions.stream(...) as events:")

    return chunks


@final
class _EventBuilder(Generic[T, C]):
    """A converter of chunks into events; holds the unread events of the latest chunk."""

    def __init__(self, reader: OutputReader[T, C]) -> None:
        self._reader = reader
        self._accumulator = ChatAccumulator()
        self._choices: dict[int, _ChoiceEventBuilder[T]] = {}
        self._events: Iterator[TypedChatEvent[T]] = iter(())

    def add(self, chunk: ChatCompletionChunk) -> TypedChatEvent[T]:
        """Add the next chunk and return its first event."""
        self._accumulator.add(chunk)
        self._events = self._derive_events(chunk.choices)
        return ChunkEvent(chunk)

    def next_event(self) -> TypedChatEvent[T] | None:
        """Return the next event of the latest chunk, or None if all have been read.

        Raises:
            IncompleteAnswerError: If a typed value was cut off or failed validation.
        """
        return next(self._events, None)

    def completion(self) -> C:
        """Return the completion that the added chunks make up."""
        return self._reader.read(self._accumulator.completion())

    def _derive_events(self, choices: Sequence[ChunkChoice]) -> Iterator[TypedChatEvent[T]]:
        for choice in choices:
            if choice.index not in self._choices:
                self._choices[choice.index] = _ChoiceEventBuilder(self._reader)

            yield from self._choices[choice.index].derive_events(choice)


@final
class _ChoiceEventBuilder(Generic[T]):
    """A converter of the deltas of one choice into events."""

    def __init__(self, reader: OutputReader[T, object]) -> None:
        self._reader = reader
        self._content = ""
        self._calls: list[tuple[str, str]] = []  # The name and the arguments of each tool call.

    def derive_events(self, choice: ChunkChoice) -> Iterator[TypedChatEvent[T]]:
        if text := choice.delta.content:
            self._content += text
            yield ContentDeltaEvent(text, self._content, self._reader.is_json)

        for call in choice.delta.tool_calls or ():
            yield from self._add_call_delta(call)

        if choice.finish_reason is not None:
            yield from self._finish(choice.finish_reason)

    def _add_call_delta(self, call: ChoiceDeltaToolCall) -> Iterator[TypedChatEvent[T]]:
        if call.index == len(self._calls):
            yield from self._finish_last_call()
            self._calls.append((call.function.name or "", ""))

        name, arguments = self._calls[call.index]
        if delta := call.function.arguments:
            arguments += delta
            self._calls[call.index] = name, arguments
            yield ToolArgumentsDeltaEvent(call.index, name, delta, arguments)

    def _finish(self, finish_reason: FinishReason) -> Iterator[TypedChatEvent[T]]:
        if self._content:
            has_value = not self._calls
            parsed = self._reader.parse(self._content, finish_reason) if has_value else None
            yield ContentDoneEvent(self._content, parsed)

        yield from self._finish_last_call()

    def _finish_last_call(self) -> Iterator[TypedChatEvent[T]]:
        if self._calls:
            name, arguments = self._calls[-1]
            yield ToolArgumentsDoneEvent(len(self._calls) - 1, name, arguments)
