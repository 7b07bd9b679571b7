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
from aiomlc.api.protocol.messages import Message
from aiomlc.api.protocol.tools import ToolChoice
from aiomlc.api.sampling import sequence_options
from aiomlc.api.tool_parser import ToolCallParser
from aiomlc.errors import BadRequestError, PromptTooLongError
from aiomlc.runtime.engine import Engine
from aiomlc.runtime.loaded_model import LoadedModel

# Above this a prompt takes over 10 ms to encode, which is too long for an event loop.
_LONG_PROMPT = 20_000

MessageLike = Mapping[str, Any] | BaseModel


class ChatOptions(TypedDict, total=False):
    """The optional fields of a request; every other of OpenAI's is refused by name."""

    model: str | None
    tools: Iterable[Mapping[str, Any]] | None
    tool_choice: ToolChoice | None
    parallel_tool_calls: bool | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    max_tokens: int | None
    max_completion_tokens: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool | None
    seed: int | None
    stream_options: Mapping[str, Any] | None
    request_id: str | None
    user: str | None
    safety_identifier: str | None
    metadata: Mapping[str, str] | None
    extra_body: Mapping[str, Any] | None


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
        tool_parser = self._tool_parser(request)
        prompt_ids = await self._prompt_ids(request)
        # No await from here on: a cancelled caller leaves nothing behind.
        deltas = self.engine.open_stream(
            prompt_ids,
            sequence_options(request, self.model),
            request.request_id or f"chatcmpl-{uuid.uuid4().hex}",
        )
        return ChatCompletionStream(
            deltas,
            model=request.model or self.model.model_name,
            include_usage=include_usage,
            tool_parser=tool_parser,
            owner=owner,
        )

    def _tool_parser(self, request: ChatCompletionRequest) -> ToolCallParser | None:
        if not request.offered_tools:
            return None

        if self.model.tool_format is None:
            raise BadRequestError(
                "the model's chat template teaches no form of tool calls that we know",
                param="tools",
            )

        return ToolCallParser(self.model.tool_format)

    async def _prompt_ids(self, request: ChatCompletionRequest) -> list[int]:
        template = self.model.chat_template
        if template is None:
            raise BadRequestError("the model has no chat template", param="messages")

        tools = [tool.for_template() for tool in request.offered_tools]
        prompt = template.render(list(map(_for_template, request.messages)), tools=tools or None)
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
        chunks = await self.open(request)
        if request.stream:
            return chunks

        async with chunks:
            return await aggregate(chunks)

    async def open(self, request: ChatCompletionRequest) -> ChatCompletionStream:
        """The stream of a parsed request, also of one that did not ask for a stream.

        Raises:
            AiomlcError: as `create`.
        """
        session = await self._service.session()
        return await session.open(
            request,
            include_usage=request.include_usage or not request.stream,
            owner=self._service,
        )


@final
class AsyncChat:
    """`engine.chat`."""

    def __init__(self, service: ChatService) -> None:
        self.completions = AsyncCompletions(service)


def _for_template(message: Message) -> dict[str, Any]:
    fields = message.model_dump(exclude_none=True)
    if message.role == "assistant":
        fields.setdefault("content", None)  # Templates tell a null content from none at all.

    return fields
