"""`engine.completions`: texts that the model goes on with, without a chat template."""

from __future__ import annotations

__all__ = ("AsyncTextCompletions", "CompletionStream", "Prompt")

import time
import uuid
from collections.abc import AsyncIterable, Iterator, Sequence
from typing import Any, Literal, Unpack, final, overload

from aiomlc.api.chunk_stream import ChunkStream
from aiomlc.api.metrics import usage_extra
from aiomlc.api.options import CompletionOptions
from aiomlc.api.protocol.completion import (
    Completion,
    CompletionChoice,
    CompletionRequest,
    parse_completion_request,
)
from aiomlc.api.session import ModelSession, Service
from aiomlc.errors import AiomlcError, RequestFailedError
from aiomlc.runtime.statistics import RequestTiming
from aiomlc.runtime.stream import Delta, DeltaStream

Prompt = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]


@final
class AsyncTextCompletions:
    """`engine.completions`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @overload
    async def create(
        self, *, prompt: Prompt, stream: Literal[True], **options: Unpack[CompletionOptions]
    ) -> CompletionStream: ...

    @overload
    async def create(
        self,
        *,
        prompt: Prompt,
        stream: Literal[False] | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Completion: ...

    @overload
    async def create(
        self, *, prompt: Prompt, stream: bool | None, **options: Unpack[CompletionOptions]
    ) -> Completion | CompletionStream: ...

    async def create(
        self,
        *,
        prompt: Prompt,
        stream: bool | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Completion | CompletionStream:
        """Go on with a text, with token ids, or with each of several.

        Several prompts run together; a stream tells them one after the other. With a
        `request_id`, the n-th of several is the request `{request_id}-{n}`, from 0.

        Raises:
            BadRequestError: a field is invalid, unknown or not supported; `param` names it.
            PromptTooLongError: a prompt leaves no room for a completion.
            DuplicateRequestError: `request_id` belongs to a request that is still running.
            RequestAbortedError: `abort` ended one of the prompts.
            EngineError: the engine is closed, dead, or failed on this request.
            ModelLoadError: this was the first request, and the model could not be opened.
        """
        request = parse_completion_request({"prompt": prompt, "stream": stream, **options})
        chunks = await self.open(request)
        if request.stream:
            return chunks

        async with chunks:
            return await _aggregate(chunks)

    async def open(self, request: CompletionRequest) -> CompletionStream:
        """The stream of a parsed request, also of one that did not ask for a stream.

        Raises:
            AiomlcError: as `create`.
        """
        session = await self._service.session()
        prompts = [
            await session.encode(prompt) if isinstance(prompt, str) else list(prompt)
            for prompt in request.prompt
        ]
        for prompt_ids in prompts:
            session.check_length(prompt_ids)

        # No await from here on: a cancelled caller leaves nothing behind.
        request_id = request.request_id or f"cmpl-{uuid.uuid4().hex}"
        return CompletionStream(
            request_id,
            _open_all(session, prompts, request, request_id),
            echoes=_echoes(session, request) if request.echo else [],
            model=request.model or session.model.model_name,
            include_usage=request.include_usage or not request.stream,
            owner=self._service,
        )


@final
class CompletionStream(ChunkStream[Delta, Completion]):
    """The pieces of the texts of one request, in OpenAI's form, prompt by prompt."""

    def __init__(
        self,
        request_id: str,
        streams: Sequence[DeltaStream],
        *,
        echoes: Sequence[str],
        model: str,
        include_usage: bool,
        owner: object,
    ) -> None:
        super().__init__(request_id, owner)
        self._streams = streams
        self._echoes = dict(enumerate(echoes))  # What is still to be told.
        self._include_usage = include_usage
        self._index = 0  # Of the prompt that is told.
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self._cached_tokens = 0
        self._timings: list[RequestTiming] = []
        self._common: dict[str, Any] = {
            "id": request_id,
            "created": int(time.time()),
            "model": model,
        }
        if include_usage:
            self._common["usage"] = None

    def __repr__(self) -> str:
        return f"<CompletionStream {self.request_id!r} of {len(self._streams)} prompts>"

    async def _next_delta(self) -> Delta:
        stream = self._streams[min(self._index, len(self._streams) - 1)]
        try:
            return await stream.__anext__()
        except AiomlcError:
            self._cancel()  # One answer: without this prompt the others are of no use.
            raise

    def _cancel(self) -> None:
        for stream in self._streams:
            stream.close()

    def _chunks(self, delta: Delta) -> Iterator[Completion]:
        index = self._index
        text = self._echoes.pop(index, "") + delta.text
        if text:
            yield self._chunk({"index": index, "text": text})

        if delta.finish_reason is None:
            return

        self._index += 1
        self._prompt_tokens += delta.prompt_tokens
        self._completion_tokens += delta.completion_tokens
        self._cached_tokens += delta.cached_tokens
        if delta.timing is not None:
            self._timings.append(delta.timing)

        yield self._chunk({"index": index, "text": "", "finish_reason": delta.finish_reason})
        if self._include_usage and self._index == len(self._streams):
            counts = {
                "extra": usage_extra(
                    self._prompt_tokens, self._completion_tokens, self._cached_tokens, self._timings
                ),
                "prompt_tokens": self._prompt_tokens,
                "completion_tokens": self._completion_tokens,
                "total_tokens": self._prompt_tokens + self._completion_tokens,
                "prompt_tokens_details": {"cached_tokens": self._cached_tokens},
            }
            yield Completion.model_validate({**self._common, "choices": [], "usage": counts})

    def _chunk(self, choice: dict[str, Any]) -> Completion:
        return Completion.model_validate({**self._common, "choices": [choice]})


async def _aggregate(chunks: AsyncIterable[Completion]) -> Completion:
    """The whole texts that the chunks of one request add up to."""
    texts: dict[int, str] = {}
    reasons: dict[int, Literal["stop", "length"] | None] = {}
    last: Completion | None = None
    async for chunk in chunks:
        last = chunk
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            reasons[choice.index] = choice.finish_reason

    if last is None or last.usage is None:
        raise RequestFailedError("the stream ended before the answer did")

    choices = [
        CompletionChoice(index=index, text=text, finish_reason=reasons[index])
        for index, text in texts.items()
    ]
    return last.model_copy(update={"choices": choices})


def _open_all(
    session: ModelSession,
    prompts: Sequence[Sequence[int]],
    request: CompletionRequest,
    request_id: str,
) -> list[DeltaStream]:
    streams: list[DeltaStream] = []
    try:
        for index, prompt_ids in enumerate(prompts):
            label = request_id if len(prompts) == 1 else f"{request_id}-{index}"
            streams.append(
                session.open_stream(prompt_ids, request, label, operation="text_completion")
            )
    except AiomlcError:
        for stream in streams:
            stream.close()
        raise

    return streams


def _echoes(session: ModelSession, request: CompletionRequest) -> list[str]:
    decode = session.model.tokenizer.decode
    return [prompt if isinstance(prompt, str) else decode(prompt) for prompt in request.prompt]
