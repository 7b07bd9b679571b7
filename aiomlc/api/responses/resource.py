"""`engine.responses`: OpenAI's Responses, without a memory, over the chunks of chat."""

from __future__ import annotations

__all__ = ("AsyncResponses", "ResponseInput", "ResponseOptions", "ResponseStream")

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, final, overload

from anyio.lowlevel import checkpoint
from pydantic import BaseModel

from aiomlc.api.chat.resource import AsyncCompletions
from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.api.protocol.response import Response, ResponseEvent
from aiomlc.api.protocol.response_request import ResponseRequest, parse_response_request
from aiomlc.api.responses.writer import ResponseWriter
from aiomlc.api.session.session import SessionProvider
from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.errors import BadRequestError, RequestFailedError

ResponseInput = str | Iterable[Mapping[str, Any] | BaseModel]


class ResponseOptions(TypedDict, total=False):
    """The optional fields of a response; every other field of OpenAI's is refused by name."""

    instructions: str | None
    model: str | None
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    tools: Iterable[Mapping[str, Any]] | None
    tool_choice: Literal["none", "auto", "required"] | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    text: Mapping[str, Any] | None
    reasoning: Mapping[str, Any] | None
    chat_template_kwargs: Mapping[str, Any] | None
    metadata: Mapping[str, str] | None
    user: str | None
    safety_identifier: str | None
    store: Literal[False] | None
    request_id: str | None
    extra_body: Mapping[str, Any] | None


@final
class AsyncResponses:
    """`engine.responses`."""

    def __init__(self, service: SessionProvider) -> None:
        self._service = service

    @overload
    async def create(
        self,
        *,
        input: ResponseInput,
        stream: Literal[True],
        **options: Unpack[ResponseOptions],
    ) -> ResponseStream: ...

    @overload
    async def create(
        self,
        *,
        input: ResponseInput,
        stream: Literal[False] | None = None,
        **options: Unpack[ResponseOptions],
    ) -> Response: ...

    @overload
    async def create(
        self, *, input: ResponseInput, stream: bool | None, **options: Unpack[ResponseOptions]
    ) -> Response | ResponseStream: ...

    async def create(
        self,
        *,
        input: ResponseInput,  # noqa: A002 - OpenAI's name.
        stream: bool | None = None,
        **options: Unpack[ResponseOptions],
    ) -> Response | ResponseStream:
        """Answer a text, or the items of a conversation; with `stream=True`, as events.

        Nothing is kept: a conversation goes on by handing its items in again, the `output` of an
        answer among them, and `store`, `previous_response_id` and `background` are refused. An
        error is raised, also in the middle of a stream: there are no events of errors.

        Raises:
            BadRequestError: a field is invalid, unknown or not supported; `param` names it.
            PromptTooLongError: the prompt leaves no room for an answer.
            DuplicateRequestError: `request_id` belongs to a request that is still running.
            RequestAbortedError: `abort` ended the request.
            EngineError: the engine is closed, dead, or failed on this request.
            ModelLoadError: this was the first request, and the model could not be opened.
        """
        request = parse_response_request({"input": input, "stream": stream, **options})
        events = await self.open(request)
        if request.stream:
            return events

        async with events:
            return await _last_response(events)

    async def open(self, request: ResponseRequest) -> ResponseStream:
        """The stream of a parsed request, also of one that did not ask for a stream.

        Raises:
            AiomlcError: as `create`.
        """
        session = await self._service.session()
        model = request.model or session.model.model_name
        try:
            chat = request.as_chat()
            if chat.request_id is None:
                chat = chat.model_copy(update={"request_id": f"resp_{uuid.uuid4().hex}"})

            chunks = await AsyncCompletions(self._service).open(chat)
        except BadRequestError as error:
            raise _in_our_words(error, request) from error.__cause__

        writer = ResponseWriter(request, chunks.request_id, model)
        return ResponseStream(chunks, writer, owner=self._service)


@final
class ResponseStream(ChunkStream[ChatCompletionChunk | None, ResponseEvent]):
    """The events of one response, in OpenAI's form."""

    def __init__(
        self, chunks: ChatCompletionStream, writer: ResponseWriter, *, owner: object
    ) -> None:
        super().__init__(chunks.request_id, owner)
        self._answer = chunks
        self._writer = writer
        self._begun = False

    def __repr__(self) -> str:
        return f"<ResponseStream {self.request_id!r}>"

    async def _next_delta(self) -> ChatCompletionChunk | None:
        if not self._begun:
            self._begun = True
            await checkpoint()
            return None

        return await self._answer.__anext__()

    def _chunks(self, delta: ChatCompletionChunk | None) -> Iterable[ResponseEvent]:
        return self._writer.begin() if delta is None else self._writer.events(delta)

    def _cancel(self) -> None:
        self._answer.close()


def _in_our_words(error: BadRequestError, request: ResponseRequest) -> BadRequestError:
    """The same error with the field's name in a response."""
    name = error.param
    if name is not None:
        error.param = request.item_chat().path(name)
        message = str(error)
        if message.startswith(f"{name}:"):
            error.args = (error.param + message.removeprefix(name),)

    return error


async def _last_response(events: ResponseStream) -> Response:
    response: Response | None = None
    async for event in events:
        if event.type in ("response.completed", "response.incomplete"):
            response = event.response

    if response is None:
        raise RequestFailedError("the stream ended before the answer did")

    return response
