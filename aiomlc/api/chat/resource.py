"""`engine.chat.completions`: validate a chat request, render its prompt and open its stream."""

from __future__ import annotations

__all__ = ("AsyncChat", "AsyncCompletions")

import uuid
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Literal, TypeVar, Unpack, final, overload

from aiomlc.api.chat.aggregate import aggregate
from aiomlc.api.chat.events import ChatEventStream
from aiomlc.api.chat.output_parsing import check_tools, parser_factory
from aiomlc.api.chat.preparation import PreparedChat, prepare_chat
from aiomlc.api.chat.prompt import with_template_stops
from aiomlc.api.chat.special_request import echoed_parameters, metrics_stream
from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.chat.typed_output import ParsedChatCompletion, TypedOutput, output_reader
from aiomlc.api.generation.logprobs import LogprobsWriter, prompt_writer
from aiomlc.api.generation.options import ChatOptions, ParseOptions, documents_options
from aiomlc.api.protocol.chat import ChatCompletion, ChatCompletionChunk
from aiomlc.api.protocol.chat_request import (
    ChatCompletionRequest,
    parse_chat_request,
    parse_event_request,
)
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.api.protocol.message_params import MessageLike
from aiomlc.api.session.session import ModelSession, SessionProvider
from aiomlc.api.streams.pending_response import PendingResponse, returns_pending
from aiomlc.api.streams.pending_stream import PendingStream
from aiomlc.api.streams.visible_names import hides
from aiomlc.errors import BadRequestError
from aiomlc.runtime.concurrency.misuse import NotCallable, explains, keyword_only
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.validation.tracebacks import keeps_origin

T = TypeVar("T")


@hides("complete", "encode", "open")
@final
class AsyncCompletions:
    """`engine.chat.completions`."""

    def __init__(self, service: SessionProvider) -> None:
        self._service = service

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: Literal[True],
        **options: Unpack[ChatOptions],
    ) -> PendingStream[ChatCompletionStream, ChatCompletionChunk]: ...

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: Literal[False] | None = None,
        **options: Unpack[ChatOptions],
    ) -> Coroutine[Any, Any, ChatCompletion]: ...

    @overload
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: bool | None,
        **options: Unpack[ChatOptions],
    ) -> Coroutine[Any, Any, ChatCompletion | ChatCompletionStream]: ...

    @documents_options(ChatOptions)
    @keyword_only
    def create(
        self,
        *,
        messages: Iterable[MessageLike],
        stream: bool | None = None,
        **options: Unpack[ChatOptions],
    ) -> Coroutine[Any, Any, ChatCompletion | ChatCompletionStream]:
        """Generate the next message of a chat.

        Returns:
            A coroutine that returns the chat completion. With `stream=True` a `PendingStream`: its
            chunks are read by `async for`, in its scope or not, with or without `await` before it.

        Raises:
            BadRequestError: If a field is invalid, unknown or not supported; `param` names it.
            PromptTooLongError: If the prompt leaves no room for a completion.
            DuplicateRequestError: If `request_id` belongs to a request that is still running.
            RequestAbortedError: If `abort` ended the request.
            EngineError: If the engine is closed, dead, or failed on this request.
            ModelLoadError: If this is the first request and the model cannot be loaded.
        """
        fields = {"messages": messages, "stream": stream, **options}
        if stream is True:
            return PendingStream(self._create_stream, fields)

        return PendingResponse(self._create(fields))

    @keeps_origin
    async def _create(self, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - see `create`.
        request = await parse_off_loop(parse_chat_request, fields)
        return await (self.open(request) if request.stream else self.complete(request))

    @keeps_origin
    async def _create_stream(self, fields: Mapping[str, Any]) -> ChatCompletionStream:
        return await self.open(await parse_off_loop(parse_chat_request, fields))

    async def complete(self, request: ChatCompletionRequest) -> ChatCompletion:
        """Return the completion of a validated request, even if `request.stream` is true.

        Raises:
            AiomlcError: As `create`.
        """
        async with await self.open(request) as chunks:
            return await aggregate(chunks)

    async def encode(self, request: ChatCompletionRequest) -> list[int]:
        """Return the token ids of a validated request's prompt, without submitting it.

        Raises:
            AiomlcError: As `create`.
        """
        _, prompt = await _prepare(await self._service.session(), request)
        return prompt.token_ids.tolist()

    @documents_options(ParseOptions)
    @keyword_only
    @returns_pending
    @keeps_origin
    async def parse(
        self,
        *,
        messages: Iterable[MessageLike],
        response_format: type[T],
        **options: Unpack[ParseOptions],
    ) -> ParsedChatCompletion[T]:
        """Generate a value of a Python type, in `choices[i].message.parsed`.

        The type may be any that pydantic supports. The completion is constrained to the type's
        JSON schema, with every property of every object present.

        Raises:
            GrammarError: If the type's schema cannot be enforced.
            IncompleteAnswerError: If the completion was cut off at the token limit, or fails
                validation.
            AiomlcError: As `create`.
        """
        reader = TypedOutput(response_format)
        fields = {**options, "response_format": reader.response_format}
        request = await parse_off_loop(parse_chat_request, {"messages": messages, **fields})
        if request.stream:
            raise BadRequestError(
                "stream: not supported by parse; use stream() for parsed events", param="stream"
            )

        async with await self.open(request) as chunks:
            return reader.read(await aggregate(chunks))

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

    @documents_options(ParseOptions)
    @keyword_only
    def stream(
        self,
        *,
        messages: Iterable[MessageLike],
        response_format: type[Any] | Mapping[str, Any] | None = None,
        **options: Unpack[ParseOptions],
    ) -> ChatEventStream[Any, Any]:
        """Stream a chat completion as events:

            async with engine.chat.completions.stream(messages=[...]) as events:
                async for event in events:
                    ...

        Entering the scope submits the request and raises the errors of `create`. If
        `response_format` is a type, as in `parse`, the content events carry parsed values:
        `ContentDeltaEvent.parsed` is the partial JSON value so far, and `ContentDoneEvent.parsed`
        is the validated value. If the content was cut off or fails validation,
        `IncompleteAnswerError` is raised in place of its `ContentDoneEvent`.
        """
        reader = output_reader(response_format)
        fields = {**options, "messages": messages, "response_format": reader.response_format}

        async def open_chunks() -> ChatCompletionStream:
            return await self.open(await parse_off_loop(parse_event_request, fields))

        return ChatEventStream(open_chunks, reader)

    async def open(self, request: ChatCompletionRequest) -> ChatCompletionStream:
        """Submit a validated request and return its stream, even if `request.stream` is false.

        Raises:
            AiomlcError: As `create`.
        """
        session = await self._service.session()
        debug = request.debug_config
        if debug is not None and debug.special_request is not None:
            request_id = request.request_id or f"chatcmpl-{uuid.uuid4().hex}"
            return metrics_stream(request, session, request_id, self._service)

        check_tools(request, session.model)
        request_id = request.request_id or f"chatcmpl-{uuid.uuid4().hex}"
        with session.preparation(request, request_id, request.n or 1) as elapsed:
            chat, prompt = await _prepare(session, request)
            grammar = await session.compile(chat.output.grammar, chat.output.param, request.n or 1)

        # No await from here on, so that a cancelled caller never leaves a request without a reader.
        deltas = session.open_stream(
            prompt,
            with_template_stops(request, session.model),
            request_id,
            request.n or 1,
            grammar,
            elapsed=elapsed.seconds,
        )
        return ChatCompletionStream(
            deltas,
            model=request.model or session.model.model_name,
            include_usage=request.include_usage or not request.stream,
            reports_usage=request.reports_usage,
            make_parser=parser_factory(request, session.model, chat),
            logprobs_writer=LogprobsWriter(session.model.tokenizer) if request.logprobs else None,
            write_prompt_logprobs=prompt_writer(request, session.model.tokenizer),
            owner=self._service,
            extra=echoed_parameters(request) if session.model.is_echo else None,
            embedded_tokens={
                "audio_tokens" if request.audios else "image_tokens": prompt.num_embedded
            },
        )


@explains(create="use `chat.completions.create`")
@final
class AsyncChat(NotCallable):
    """`engine.chat`."""

    _call_example = "engine.chat.completions.create(messages=[...])"

    def __init__(self, service: SessionProvider) -> None:
        self.completions: AsyncCompletions = AsyncCompletions(service)


async def _prepare(
    session: ModelSession, request: ChatCompletionRequest
) -> tuple[PreparedChat, Prompt]:
    """Load the images and recordings of a chat, render its prompt and encode it."""
    images = await session.load_images(request.images)
    audios = await session.load_audios(request.audios)
    chat = await prepare_chat(request, session.model)
    prompt = await session.encode_chat(
        chat.prompt,
        images=images,
        audios=audios,
        add_special_tokens=request.add_special_tokens,
        split_special_tokens=request.split_special_tokens,
    )
    return chat, prompt
