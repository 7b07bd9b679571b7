"""`engine.responses`: OpenAI's Responses API without stored state, on top of chat completions."""

from __future__ import annotations

__all__ = ("AsyncResponses", "ResponseInput", "ResponseOptions", "ResponseStream")

import uuid
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypedDict, Unpack, final, overload

from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectStreamStatistics
from pydantic import BaseModel

from aiomlc.api.chat.resource import AsyncCompletions
from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.generation.options import documents_options
from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.api.protocol.response import Response, ResponseEvent
from aiomlc.api.protocol.response_request import ResponseRequest, parse_response_request
from aiomlc.api.responses.writer import ResponseWriter
from aiomlc.api.session.session import SessionProvider
from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.api.streams.pending_response import PendingResponse
from aiomlc.api.streams.pending_stream import PendingStream
from aiomlc.api.streams.visible_names import hides
from aiomlc.errors import BadRequestError, RequestFailedError
from aiomlc.runtime.concurrency.misuse import keyword_only
from aiomlc.validation.parameter import Doc
from aiomlc.validation.tracebacks import keeps_origin

ResponseInput = str | Iterable[Mapping[str, Any] | BaseModel]


class ResponseOptions(TypedDict, total=False):
    """The optional fields of a request for a response; OpenAI's other fields are rejected."""

    instructions: Annotated[str | None, Doc("A system message before the input.")]
    model: Annotated[str | None, Doc("A name that the response repeats.")]
    max_output_tokens: Annotated[
        int | None, Doc("The maximum number of tokens (the rest of the context window).")
    ]
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    stop: Annotated[str | Sequence[str] | None, Doc("Strings that end the text; not part of it.")]
    tools: Annotated[Iterable[Mapping[str, Any]] | None, Doc("Functions that the model may call.")]
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | Mapping[str, Any] | None,
        Doc('The tools to call ("auto").'),
    ]
    parallel_tool_calls: Annotated[bool | None, Doc("False allows at most one call (True).")]
    text: Annotated[Mapping[str, Any] | None, Doc("`format`: the JSON schema of the text.")]
    reasoning: Annotated[Mapping[str, Any] | None, Doc("`effort`: passed to the chat template.")]
    chat_template_kwargs: Annotated[
        Mapping[str, Any] | None, Doc("Variables for the chat template.")
    ]
    metadata: Annotated[Mapping[str, str] | None, Doc("Labels without effect.")]
    user: Annotated[str | None, Doc("A label without effect.")]
    safety_identifier: Annotated[str | None, Doc("A label without effect.")]
    store: Annotated[Literal[False] | None, Doc("Responses are not stored: False.")]
    request_id: Annotated[str | None, Doc("The id for `abort` (random).")]
    extra_body: Annotated[Mapping[str, Any] | None, Doc("Further fields, merged with the others.")]


@hides("complete", "open")
@final
class AsyncResponses:
    """`engine.responses`."""

    def __init__(self, service: SessionProvider) -> None:
        self._service = service

    @overload
    def create(
        self,
        *,
        input: ResponseInput,
        stream: Literal[True],
        **options: Unpack[ResponseOptions],
    ) -> PendingStream[ResponseStream, ResponseEvent]: ...

    @overload
    def create(
        self,
        *,
        input: ResponseInput,
        stream: Literal[False] | None = None,
        **options: Unpack[ResponseOptions],
    ) -> Coroutine[Any, Any, Response]: ...

    @overload
    def create(
        self, *, input: ResponseInput, stream: bool | None, **options: Unpack[ResponseOptions]
    ) -> Coroutine[Any, Any, Response | ResponseStream]: ...

    @documents_options(ResponseOptions)
    @keyword_only
    def create(
        self,
        *,
        input: ResponseInput,  # noqa: A002 - OpenAI's name.
        stream: bool | None = None,
        **options: Unpack[ResponseOptions],
    ) -> Coroutine[Any, Any, Response | ResponseStream]:
        """Generate a response to a string or to the items of a conversation.

        Responses are not stored: to continue a conversation, pass all of its items, including the
        `output` of earlier responses. `store=True`, `previous_response_id` and `background=True`
        are not supported. Errors are raised, also while a stream is read; there are no error
        events.

        Returns:
            A coroutine that returns the response. With `stream=True` a `PendingStream`: its events
            are read by `async for`, in its scope or not, with or without `await` before it.

        Raises:
            BadRequestError: If a field is invalid, unknown or not supported; `param` names it.
            PromptTooLongError: If the prompt leaves no room for a completion.
            DuplicateRequestError: If `request_id` belongs to a request that is still running.
            RequestAbortedError: If `abort` ended the request.
            EngineError: If the engine is closed, dead, or failed on this request.
            ModelLoadError: If this is the first request and the model cannot be loaded.
        """
        fields = {"input": input, "stream": stream, **options}
        if stream is True:
            return PendingStream(self._create_stream, fields)

        return PendingResponse(self._create(fields))

    @keeps_origin
    async def _create(self, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - see `create`.
        request = await parse_off_loop(parse_response_request, fields)
        return await (self.open(request) if request.stream else self.complete(request))

    @keeps_origin
    async def _create_stream(self, fields: Mapping[str, Any]) -> ResponseStream:
        return await self.open(await parse_off_loop(parse_response_request, fields))

    async def complete(self, request: ResponseRequest) -> Response:
        """Return the response to a validated request, even if `request.stream` is true.

        Raises:
            AiomlcError: As `create`.
        """
        async with await self.open(request) as events:
            return await _read_final_response(events)

    async def open(self, request: ResponseRequest) -> ResponseStream:
        """Submit a validated request and return its stream, even if `request.stream` is false.

        Raises:
            AiomlcError: As `create`.
        """
        session = await self._service.session()
        model = request.model or session.model.model_name
        try:
            parse = partial(parse_chat_request, ignored=request.ignored_fields)
            chat = await parse_off_loop(parse, request.chat_fields())
            if chat.request_id is None:
                chat = chat.model_copy(update={"request_id": f"resp_{uuid.uuid4().hex}"})

            chunks = await AsyncCompletions(self._service).open(chat)
        except BadRequestError as error:
            raise _with_response_path(error, request) from error.__cause__

        writer = ResponseWriter(request, chunks.request_id, model)
        return ResponseStream(chunks, writer, owner=self._service)


@final
class ResponseStream(ChunkStream[ChatCompletionChunk | None, ResponseEvent]):
    """The stream of one response's events, as an async iterator for one task.

    Yields `ResponseEvent` objects, from `response.created` to `response.completed` or
    `response.incomplete`. Leaving the scope or `close` cancels the request unless it has finished;
    see `ChunkStream` for the errors that iteration raises.
    """

    def __init__(
        self, chunks: ChatCompletionStream, writer: ResponseWriter, *, owner: object
    ) -> None:
        super().__init__(chunks.request_id, owner)
        self._chat_chunks = chunks
        self._writer = writer
        self._started = False

    def __repr__(self) -> str:
        return f"<ResponseStream {self.request_id!r}>"

    async def _next_delta(self) -> ChatCompletionChunk | None:
        if not self._started:
            self._started = True
            await checkpoint()
            return None

        return await self._chat_chunks.__anext__()

    def _delta_to_chunks(self, delta: ChatCompletionChunk | None) -> Iterable[ResponseEvent]:
        return self._writer.begin() if delta is None else self._writer.events(delta)

    def _delta_statistics(self) -> MemoryObjectStreamStatistics:
        return self._chat_chunks.statistics()

    def _cancel(self) -> None:
        self._started = True
        self._chat_chunks.close()


def _with_response_path(error: BadRequestError, request: ResponseRequest) -> BadRequestError:
    """Replace the path of a chat field by its path in the response request."""
    chat_path = error.param
    if chat_path is not None:
        error.param = request.item_chat().to_response_path(chat_path)
        message = str(error)
        if message.startswith(f"{chat_path}:"):
            error.args = (error.param + message.removeprefix(chat_path),)

    return error


async def _read_final_response(events: ResponseStream) -> Response:
    response: Response | None = None
    async for event in events:
        if event.type in ("response.completed", "response.incomplete"):
            response = event.response

    if response is None:
        raise RequestFailedError("the stream ended before the response was finished")

    return response
