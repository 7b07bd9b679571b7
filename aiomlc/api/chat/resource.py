"""`engine.chat.completions`: a request's way from its messages to its stream."""

from __future__ import annotations

__all__ = ("AsyncChat", "AsyncCompletions", "MessageLike")

import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar, Unpack, final, overload

from pydantic import BaseModel

from aiomlc.api.chat.aggregate import aggregate
from aiomlc.api.chat.events import ChatEventStream
from aiomlc.api.chat.prompt import render_prompt, with_template_stops
from aiomlc.api.chat.reasoning import ReasoningParser, starts_in_reasoning
from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.api.chat.typed_output import ParsedChatCompletion, TypedOutput, output_reader
from aiomlc.api.generation.logprobs import LogprobsWriter, prompt_writer
from aiomlc.api.generation.options import ChatOptions, ParseOptions
from aiomlc.api.generation.structured_output import allow_reasoning_before, output_grammar
from aiomlc.api.protocol.chat import ChatCompletion
from aiomlc.api.protocol.chat_request import (
    ChatCompletionRequest,
    parse_chat_request,
    parse_event_request,
)
from aiomlc.api.session.session import SessionProvider
from aiomlc.errors import BadRequestError
from aiomlc.runtime.loading.loaded_model import LoadedModel

MessageLike = Mapping[str, Any] | BaseModel
T = TypeVar("T")


@final
class AsyncCompletions:
    """`engine.chat.completions`."""

    def __init__(self, service: SessionProvider) -> None:
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

    async def parse(
        self,
        *,
        messages: Iterable[MessageLike],
        response_format: type[T],
        **options: Unpack[ParseOptions],
    ) -> ParsedChatCompletion[T]:
        """Answer with a value of a type that pydantic knows, in `choices[0].message.parsed`.

        The answer is JSON of the type's schema; all of an object's properties are in it.

        Raises:
            GrammarError: the type's schema cannot be enforced.
            IncompleteAnswerError: the token limit cut the answer, or a check of the type's own
                refuses it.
            AiomlcError: as `create`.
        """
        answer = TypedOutput(response_format)
        fields = {**options, "response_format": answer.response_format}
        request = parse_chat_request({"messages": messages, **fields})
        if request.stream:
            raise BadRequestError("stream: a value is told when it is whole", param="stream")

        async with await self.open(request) as chunks:
            return answer.read(await aggregate(chunks))

    @overload
    def stream(
        self,
        *,
        messages: Iterable[MessageLike],
        response_format: type[T],
        **options: Unpack[ParseOptions],
    ) -> ChatEventStream[T, ParsedChatCompletion[T]]: ...

    @overload
    def stream(
        self, *, messages: Iterable[MessageLike], **options: Unpack[ChatOptions]
    ) -> ChatEventStream[None, ChatCompletion]: ...

    def stream(
        self,
        *,
        messages: Iterable[MessageLike],
        response_format: type[Any] | Mapping[str, Any] | None = None,
        **options: Unpack[ParseOptions],
    ) -> ChatEventStream[Any, Any]:
        """The answer as events, in a scope:

            async with engine.chat.completions.stream(messages=[...]) as events:
                async for event in events:
                    ...

        Entering it submits the request, with the errors of `create`. With a type for
        `response_format`, as of `parse`, the events of the content have the value, too: `parsed`
        is what JSON has told of it so far, and at the end the value of the type. A content that
        is none raises `IncompleteAnswerError` in place of its last event.
        """
        reader = output_reader(response_format)
        fields = {**options, "messages": messages, "response_format": reader.response_format}

        async def open_chunks() -> ChatCompletionStream:
            return await self.open(parse_event_request(fields))

        return ChatEventStream(open_chunks, reader)

    async def open(self, request: ChatCompletionRequest) -> ChatCompletionStream:
        """The stream of a parsed request, also of one that did not ask for a stream.

        Raises:
            AiomlcError: as `create`.
        """
        session = await self._service.session()
        open_calls = _tool_calls(request, session.model)
        answer = output_grammar(request, session.model)
        prompt = render_prompt(request, session.model)
        in_reasoning = starts_in_reasoning(request, session.model, prompt)
        if in_reasoning:
            answer = allow_reasoning_before(answer, session.model)

        prompt_ids = await session.encode_chat(prompt)
        grammar = await session.compile(answer.grammar, answer.param)
        # No await from here on: a cancelled caller leaves nothing behind.
        deltas = session.open_stream(
            prompt_ids,
            with_template_stops(request, session.model),
            request.request_id or f"chatcmpl-{uuid.uuid4().hex}",
            request.n or 1,
            grammar,
        )
        return ChatCompletionStream(
            deltas,
            model=request.model or session.model.model_name,
            include_usage=request.include_usage or not request.stream,
            open_calls=open_calls,
            open_reasoning=_reasoning(request, session.model, begins_inside=in_reasoning),
            logprobs=LogprobsWriter(session.model.tokenizer) if request.logprobs else None,
            write_prompt=prompt_writer(request, session.model.tokenizer),
            owner=self._service,
        )


@final
class AsyncChat:
    """`engine.chat`."""

    def __init__(self, service: SessionProvider) -> None:
        self.completions: AsyncCompletions = AsyncCompletions(service)


def _reasoning(
    request: ChatCompletionRequest, model: LoadedModel, *, begins_inside: bool
) -> Callable[[], ReasoningParser] | None:
    """What reads the thoughts of a choice; None where there are none to be read."""
    reasoning_format = model.reasoning_format
    if reasoning_format is None or request.separate_reasoning is False:
        return None

    return partial(ReasoningParser, reasoning_format, begins_inside=begins_inside)


def _tool_calls(
    request: ChatCompletionRequest, model: LoadedModel
) -> Callable[[], ToolCallParser] | None:
    """What reads the calls of a choice; None where no tools are offered."""
    if not request.offered_tools:
        return None

    if model.tool_format is None:
        raise BadRequestError(
            "the model's chat template teaches no form of tool calls that we know", param="tools"
        )

    functions = [tool.function for tool in request.offered_tools]
    parameters = {function.name: function.parameters or {} for function in functions}
    wanted = request.response_format
    has_form = wanted is not None and wanted.type != "text"
    return partial(ToolCallParser, model.tool_format, parameters, has_form=has_form)
