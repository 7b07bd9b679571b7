"""The request methods of `MLCEngine`, which call those of the async engine."""

from __future__ import annotations

__all__ = (
    "Chat",
    "ChatCompletionIterator",
    "CompletionIterator",
    "Embeddings",
    "Models",
    "ResponseIterator",
    "Responses",
    "TextCompletions",
)

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, final, overload

from aiomlc.api.chat.events import ChatEventIterator
from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.chat.typed_output import ParsedChatCompletion, output_reader
from aiomlc.api.completions.resource import PromptInput
from aiomlc.api.completions.stream import CompletionStream
from aiomlc.api.embeddings import EmbeddingInput, EmbeddingOptions
from aiomlc.api.engines.async_engine import AsyncMLCEngine
from aiomlc.api.generation.options import (
    ChatOptions,
    CompletionOptions,
    ParseOptions,
    documents_options,
)
from aiomlc.api.protocol.chat import ChatCompletion, ChatCompletionChunk
from aiomlc.api.protocol.chat_request import ChatCompletionRequest, parse_event_request
from aiomlc.api.protocol.completion import Completion
from aiomlc.api.protocol.embedding import EmbeddingResponse
from aiomlc.api.protocol.message_params import MessageLike
from aiomlc.api.protocol.model import Model, ModelList
from aiomlc.api.protocol.response import Response, ResponseEvent
from aiomlc.api.responses.resource import ResponseInput, ResponseOptions, ResponseStream
from aiomlc.api.streams.portal import BlockingStream, EnginePortal
from aiomlc.api.streams.visible_names import hides
from aiomlc.runtime.concurrency.misuse import NotCallable, explains, keyword_only

if TYPE_CHECKING:
    from aiomlc.runtime.embedding.embedder import Embedder

ChatCompletionIterator = BlockingStream[ChatCompletionChunk]
CompletionIterator = BlockingStream[Completion]
ResponseIterator = BlockingStream[ResponseEvent]
T = TypeVar("T")


class _Resource:
    """A resource of an engine for blocking code."""

    def __init__(self, engine: AsyncMLCEngine, portal: EnginePortal) -> None:
        self._engine = engine
        self._portal = portal


@explains(create="use `chat.completions.create`")
@final
class Chat(NotCallable):
    """`engine.chat`."""

    _call_example = "engine.chat.completions.create(messages=[...])"

    def __init__(self, engine: AsyncMLCEngine, portal: EnginePortal) -> None:
        self.completions: Completions = Completions(engine, portal)


@hides("open")
@final
class Completions(_Resource):
    """`engine.chat.completions`."""

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: Literal[True],
        **options: Unpack[ChatOptions],
    ) -> ChatCompletionIterator: ...

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: Literal[False] | None = None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion: ...

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: bool | None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion | ChatCompletionIterator: ...

    @documents_options(ChatOptions)
    @keyword_only
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: bool | None = None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion | ChatCompletionIterator:
        """Complete a chat like `AsyncCompletions.create`, with the same errors."""
        create = partial(
            self._engine.chat.completions.create, messages=messages, stream=stream, **options
        )
        response = self._portal.call(create)
        if isinstance(response, ChatCompletionStream):
            return ChatCompletionIterator(response, self._portal)

        return response

    @documents_options(ParseOptions)
    @keyword_only
    def parse(
        self,
        *,
        messages: Iterable[MessageLike],
        response_format: type[T],
        **options: Unpack[ParseOptions],
    ) -> ParsedChatCompletion[T]:
        """Return a typed value like `AsyncCompletions.parse`, with the same errors."""
        parse = self._engine.chat.completions.parse
        return self._portal.call(
            partial(parse, messages=messages, response_format=response_format, **options)
        )

    @overload
    def stream(
        self,
        *,
        messages: Iterable[MessageLike],
        response_format: type[T],
        **options: Unpack[ParseOptions],
    ) -> ChatEventIterator[T, ParsedChatCompletion[T]]: ...

    @overload
    def stream(
        self, *, messages: Iterable[MessageLike], **options: Unpack[ChatOptions]
    ) -> ChatEventIterator[None, ChatCompletion]: ...

    @documents_options(ParseOptions)
    @keyword_only
    def stream(
        self,
        *,
        messages: Iterable[MessageLike],
        response_format: type[Any] | Mapping[str, Any] | None = None,
        **options: Unpack[ParseOptions],
    ) -> ChatEventIterator[Any, Any]:
        """Return a context manager for the events of a chat, like `AsyncCompletions.stream`."""
        reader = output_reader(response_format)
        fields = {**options, "messages": messages, "response_format": reader.response_format}

        def open_chunks() -> ChatCompletionIterator:
            return self.open(parse_event_request(fields))

        return ChatEventIterator(open_chunks, reader)

    def open(self, request: ChatCompletionRequest) -> ChatCompletionIterator:
        """Open the stream of a validated request, like `AsyncCompletions.open`."""
        stream = self._portal.call(self._engine.chat.completions.open, request)
        return ChatCompletionIterator(stream, self._portal)


@final
class TextCompletions(_Resource):
    """`engine.completions`."""

    @overload
    def create(
        self, *, prompt: PromptInput, stream: Literal[True], **options: Unpack[CompletionOptions]
    ) -> CompletionIterator: ...

    @overload
    def create(
        self,
        *,
        prompt: PromptInput,
        stream: Literal[False] | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Completion: ...

    @overload
    def create(
        self, *, prompt: PromptInput, stream: bool | None, **options: Unpack[CompletionOptions]
    ) -> Completion | CompletionIterator: ...

    @documents_options(CompletionOptions)
    @keyword_only
    def create(
        self,
        *,
        prompt: PromptInput,
        stream: bool | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Completion | CompletionIterator:
        """Complete prompts like `AsyncTextCompletions.create`, with the same errors."""
        create = partial(self._engine.completions.create, prompt=prompt, stream=stream, **options)
        response = self._portal.call(create)
        if isinstance(response, CompletionStream):
            return CompletionIterator(response, self._portal)

        return response


@final
class Models(_Resource):
    """`engine.models`."""

    def list(self) -> ModelList:
        """Return the model that the engine serves, with the errors of `AsyncModels.list`."""
        return self._portal.call(self._engine.models.list)

    def retrieve(self, model: str) -> Model:
        """Return a model by its id, with the errors of `AsyncModels.retrieve`."""
        return self._portal.call(self._engine.models.retrieve, model)


@hides("embedder")
@final
class Embeddings(_Resource):
    """`engine.embeddings`."""

    @documents_options(EmbeddingOptions)
    @keyword_only
    def create(
        self,
        *,
        input: EmbeddingInput,  # noqa: A002 - OpenAI's name.
        **options: Unpack[EmbeddingOptions],
    ) -> EmbeddingResponse:
        """Return the embeddings of inputs like `AsyncEmbeddings.create`, with the same errors."""
        return self._portal.call(partial(self._engine.embeddings.create, input=input, **options))

    def embedder(self) -> Embedder:
        """Return the embedder of the model like `AsyncEmbeddings.embedder`."""
        return self._portal.call(self._engine.embeddings.embedder)


@final
class Responses(_Resource):
    """`engine.responses`."""

    @overload
    def create(
        self, *, input: ResponseInput, stream: Literal[True], **options: Unpack[ResponseOptions]
    ) -> ResponseIterator: ...

    @overload
    def create(
        self,
        *,
        input: ResponseInput,
        stream: Literal[False] | None = None,
        **options: Unpack[ResponseOptions],
    ) -> Response: ...

    @overload
    def create(
        self, *, input: ResponseInput, stream: bool | None, **options: Unpack[ResponseOptions]
    ) -> Response | ResponseIterator: ...

    @documents_options(ResponseOptions)
    @keyword_only
    def create(
        self,
        *,
        input: ResponseInput,  # noqa: A002 - OpenAI's name.
        stream: bool | None = None,
        **options: Unpack[ResponseOptions],
    ) -> Response | ResponseIterator:
        """Generate a response like `AsyncResponses.create`, with the same errors."""
        create = partial(self._engine.responses.create, input=input, stream=stream, **options)
        response = self._portal.call(create)
        if isinstance(response, ResponseStream):
            return ResponseIterator(response, self._portal)

        return response
