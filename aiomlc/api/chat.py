"""`engine.chat.completions`: a request's way from its messages to its stream."""

from __future__ import annotations

__all__ = ("AsyncChat", "AsyncCompletions", "ChatOptions", "ChatService", "ChatSession")

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, Unpack, final, overload

from anyio import to_thread
from anyio.lowlevel import checkpoint
from pydantic import BaseModel

from aiomlc.api.aggregate import aggregate
from aiomlc.api.chat_stream import ChatCompletionStream
from aiomlc.api.protocol.chat import ChatCompletion
from aiomlc.api.protocol.chat_request import ChatCompletionRequest, parse_chat_request
from aiomlc.config import SequenceOptions
from aiomlc.errors import BadRequestError, PromptTooLongError
from aiomlc.runtime.engine import Engine
from aiomlc.runtime.loaded_model import LoadedModel

# Above this a prompt takes over 10 ms to encode, which is too long for an event loop.
_LONG_PROMPT = 20_000

MessageLike = Mapping[str, Any] | BaseModel


class ChatOptions(TypedDict, total=False):
    """The optional fields of a request; every other of OpenAI's is refused by name."""

    model: str | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    n: int | None
    max_tokens: int | None
    max_completion_tokens: int | None
    stop: str | Sequence[str] | None
    seed: int | None
    stream_options: Mapping[str, Any] | None
    request_id: str | None


@final
class ChatSession:
    """A served model: what a request needs once the engine is open."""

    def __init__(self, engine: Engine, model: LoadedModel) -> None:
        self.engine = engine
        self.model = model

    async def open(
        self, request: ChatCompletionRequest, *, include_usage: bool, owner: object
    ) -> ChatCompletionStream:
        """Render, encode and submit a request.

        Raises:
            RequestError: the template, the length or the core refuses it.
            EngineError: the engine is closed or dead.
        """
        prompt_ids = await self._prompt_ids(request)
        # No await from here on: a cancelled caller leaves nothing behind.
        deltas = self.engine.open_stream(
            prompt_ids,
            self._options(request),
            request.request_id or f"chatcmpl-{uuid.uuid4().hex}",
            request.n or 1,
        )
        return ChatCompletionStream(
            deltas,
            model=request.model or self.model.model_name,
            num_choices=request.n or 1,
            include_usage=include_usage,
            owner=owner,
        )

    async def _prompt_ids(self, request: ChatCompletionRequest) -> list[int]:
        template = self.model.chat_template
        if template is None:
            raise BadRequestError("the model has no chat template", param="messages")

        messages = [message.model_dump(exclude_none=True) for message in request.messages]
        prompt = template.render(messages)
        encode = self.model.tokenizer.encode
        if len(prompt) > _LONG_PROMPT:
            prompt_ids = await to_thread.run_sync(encode, prompt)
        else:
            await checkpoint()
            prompt_ids = encode(prompt)

        if len(prompt_ids) >= self.model.context_window:
            raise PromptTooLongError(
                prompt_tokens=len(prompt_ids), context_window=self.model.context_window
            )

        return prompt_ids

    def _options(self, request: ChatCompletionRequest) -> SequenceOptions:
        defaults = self.model.default_options
        temperature = request.temperature
        top_p = request.top_p
        return SequenceOptions(
            max_tokens=request.token_limit,
            temperature=defaults.temperature if temperature is None else temperature,
            top_p=defaults.top_p if top_p is None else top_p,
            top_k=request.top_k or 0,
            min_p=request.min_p or 0.0,
            seed=request.seed,
            stop=request.stop,
            stop_token_ids=self.model.stop_token_ids,
        )


class ChatService(Protocol):
    """Whoever can open the engine, at the first request if need be."""

    async def session(self) -> ChatSession:
        """The session of the open engine."""


@final
class AsyncCompletions:
    """`engine.chat.completions`."""

    def __init__(self, service: ChatService) -> None:
        self._service = service

    @overload
    async def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: Literal[True],
        **options: Unpack[ChatOptions],
    ) -> ChatCompletionStream: ...

    @overload
    async def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: Literal[False] | None = None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion: ...

    @overload
    async def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: bool | None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion | ChatCompletionStream: ...

    async def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: bool | None = None,
        **options: Unpack[ChatOptions],
    ) -> ChatCompletion | ChatCompletionStream:
        """Answer `messages`; with `stream=True` return the stream of chunks, not the answer.

        Raises:
            BadRequestError: a field is invalid, unknown or not supported; `param` names it.
            PromptTooLongError: the prompt leaves no room for a completion.
            DuplicateRequestError: `request_id` belongs to a request that is still running.
            RequestAbortedError: `abort` ended the request.
            EngineError: the engine is closed, dead, or failed on this request.
            ModelLoadError: this was the first request, and the model could not be opened.
        """
        request = parse_chat_request({"messages": messages, "stream": stream, **options})
        session = await self._service.session()
        chunks = await session.open(
            request,
            include_usage=request.include_usage or not request.stream,
            owner=self._service,
        )
        if request.stream:
            return chunks

        async with chunks:
            return await aggregate(chunks)


@final
class AsyncChat:
    """`engine.chat`."""

    def __init__(self, service: ChatService) -> None:
        self.completions = AsyncCompletions(service)
