"""`engine.completions`: text completions, without a chat template."""

from __future__ import annotations

__all__ = ("AsyncTextCompletions", "PromptInput")

import math
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Unpack, final, overload

from aiomlc.api.completions.logprobs import CompletionLogprobsWriter, Echo
from aiomlc.api.completions.stream import CompletionStream, aggregate_completion
from aiomlc.api.generation.logprobs import prompt_writer
from aiomlc.api.generation.options import CompletionOptions, documents_options
from aiomlc.api.generation.structured_output import response_grammar
from aiomlc.api.protocol.completion import (
    Completion,
    CompletionChoice,
    CompletionRequest,
    parse_completion_request,
)
from aiomlc.api.protocol.limits import parse_off_loop
from aiomlc.api.session.session import ModelSession, SessionProvider
from aiomlc.api.streams.pending_response import PendingResponse
from aiomlc.api.streams.pending_stream import PendingStream
from aiomlc.api.streams.visible_names import hides
from aiomlc.errors import BadRequestError
from aiomlc.runtime.concurrency.misuse import keyword_only
from aiomlc.runtime.concurrency.turns import preparation_turns
from aiomlc.runtime.engine.prompt import Prompt
from aiomlc.runtime.engine.stream import DeltaStream
from aiomlc.runtime.tokenization.fim import find_fim_tokens
from aiomlc.validation.tracebacks import keeps_origin

PromptInput = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]


@hides("complete", "encode", "open")
@final
class AsyncTextCompletions:
    """`engine.completions`."""

    def __init__(self, service: SessionProvider) -> None:
        self._service = service

    @overload
    def create(
        self, *, prompt: PromptInput, stream: Literal[True], **options: Unpack[CompletionOptions]
    ) -> PendingStream[CompletionStream, Completion]: ...

    @overload
    def create(
        self,
        *,
        prompt: PromptInput,
        stream: Literal[False] | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Coroutine[Any, Any, Completion]: ...

    @overload
    def create(
        self, *, prompt: PromptInput, stream: bool | None, **options: Unpack[CompletionOptions]
    ) -> Coroutine[Any, Any, Completion | CompletionStream]: ...

    @documents_options(CompletionOptions)
    @keyword_only
    def create(
        self,
        *,
        prompt: PromptInput,
        stream: bool | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Coroutine[Any, Any, Completion | CompletionStream]:
        """Complete one prompt or several; a prompt is text or a list of token ids.

        Several prompts run concurrently; a stream yields their completions one prompt after the
        other. Prompt number i of several becomes the request `{request_id}-{i}`, from 0. `best_of`
        generates that many choices and returns the best `n`; the usage counts all of them.
        `suffix` requires a model with fill-in-the-middle (FIM) tokens.

        Returns:
            A coroutine that returns the completion. With `stream=True` a `PendingStream`: its
            chunks are read by `async for`, in its scope or not, with or without `await` before it.

        Raises:
            BadRequestError: If a field is invalid, unknown or not supported; `param` names it.
            PromptTooLongError: If a prompt leaves no room for a completion.
            DuplicateRequestError: If `request_id` belongs to a request that is still running.
            RequestAbortedError: If `abort` ended one of the prompts.
            EngineError: If the engine is closed, dead, or failed on this request.
            ModelLoadError: If this is the first request and the model cannot be loaded.
        """
        fields = {"prompt": prompt, "stream": stream, **options}
        if stream is True:
            return PendingStream(self._create_stream, fields)

        return PendingResponse(self._create(fields))

    @keeps_origin
    async def _create(self, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - see `create`.
        request = await parse_off_loop(parse_completion_request, fields)
        return await (self.open(request) if request.stream else self.complete(request))

    @keeps_origin
    async def _create_stream(self, fields: Mapping[str, Any]) -> CompletionStream:
        return await self.open(await parse_off_loop(parse_completion_request, fields))

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the completion of a validated request, even if `request.stream` is true.

        Raises:
            AiomlcError: As `create`.
        """
        async with await self.open(request) as chunks:
            completion = await aggregate_completion(chunks)

        if request.is_selective:
            return _select_best(completion, request, chunks.num_echoed_tokens)

        return completion

    async def encode(self, request: CompletionRequest) -> list[list[int]]:
        """Return the token ids of a validated request's prompts, without submitting it.

        Raises:
            AiomlcError: As `create`.
        """
        session = await self._service.session()
        return [prompt.token_ids.tolist() for prompt in await _encode_prompts(session, request)]

    async def open(self, request: CompletionRequest) -> CompletionStream:
        """Submit a validated request and return its stream, even if `request.stream` is false.

        Raises:
            AiomlcError: As `create`.
        """
        session = await self._service.session()
        request_id = request.request_id or f"cmpl-{uuid.uuid4().hex}"
        with session.preparation(
            request, request_id, request.num_choices, "text_completion"
        ) as elapsed:
            if request.suffix is None:
                prompts = await _encode_prompts(session, request)
            else:
                prompts, request = await _apply_suffix(session, request, request.suffix)

            for prompt in prompts:
                session.check_prompt(prompt)

            uncompiled = response_grammar(request.response_format, session.model)
            num_choices = len(prompts) * request.num_choices
            grammar = await session.compile(uncompiled, "response_format", num_choices)

        streams = await _open_streams(
            session, prompts, request, request_id, grammar, elapsed.seconds
        )
        # No await from here on, so that a cancelled caller never leaves a request without a reader.
        return CompletionStream(
            request_id,
            streams,
            echoes=_make_echoes(session, request, prompts) if request.echo else [],
            model=request.model or session.model.model_name,
            include_usage=request.include_usage or not request.stream,
            reports_usage=request.reports_usage,
            drops_output=request.max_tokens == 0,
            write_prompt_logprobs=prompt_writer(request, session.model.tokenizer),
            make_logprobs_writer=(
                None
                if request.num_logprobs is None
                else partial(
                    CompletionLogprobsWriter,
                    session.model.tokenizer,
                    num_top=request.num_logprobs,
                )
            ),
            owner=self._service,
        )


async def _open_streams(
    session: ModelSession,
    prompts: Sequence[Prompt],
    request: CompletionRequest,
    request_id: str,
    grammar: object,
    elapsed: float,
) -> list[DeltaStream]:
    streams: list[DeltaStream] = []
    turns = preparation_turns()
    if len(prompts) > 1:
        await turns.wait()  # So that a whole turn is left, and the first step has many of them.

    try:
        for index, prompt in enumerate(prompts):
            if index > 0 and turns.are_over():
                await turns.wait()

            prompt_request_id = request_id if len(prompts) == 1 else f"{request_id}-{index}"
            streams.append(
                session.open_stream(
                    prompt,
                    request,
                    prompt_request_id,
                    request.num_choices,
                    grammar,
                    operation="text_completion",
                    elapsed=elapsed,
                )
            )
    except BaseException:  # An error of the request, or a cancellation.
        for stream in streams:
            stream.close()
        raise

    if len(streams) > 1:
        session.engine.add_group(request_id, (stream.request_id for stream in streams))

    return streams


async def _encode_prompts(session: ModelSession, request: CompletionRequest) -> list[Prompt]:
    return [
        await session.encode_prompt(
            prompt,
            add_special_tokens=request.add_special_tokens,
            split_special_tokens=request.split_special_tokens,
        )
        for prompt in request.prompt
    ]


async def _apply_suffix(
    session: ModelSession, request: CompletionRequest, suffix: str
) -> tuple[list[Prompt], CompletionRequest]:
    """Return the fill-in-the-middle prompts, and the request with the FIM stop tokens."""
    tokens = find_fim_tokens(session.model.tokenizer)
    if tokens is None:
        raise BadRequestError(
            "suffix: the model's vocabulary has no fill-in-the-middle tokens", param="suffix"
        )

    encode = partial(
        session.encode_prompt,
        add_special_tokens=False,
        split_special_tokens=request.split_special_tokens,
    )
    suffix_ids = (await encode(suffix)).token_ids
    prompts = []
    for prompt in request.prompt:
        prefix_ids = (await encode(prompt)).token_ids
        prompt_ids = tokens.prompt(prefix_ids, suffix_ids)
        if isinstance(prompt, str):
            prompt_ids = session.model.as_text(prompt_ids, request.add_special_tokens)
        prompts.append(Prompt(prompt_ids))

    stop_token_ids = (*request.stop_token_ids, *tokens.end_ids)
    return prompts, request.model_copy(update={"stop_token_ids": stop_token_ids})


def _select_best(
    completion: Completion, request: CompletionRequest, num_echoed_tokens: Sequence[int]
) -> Completion:
    """Keep each prompt's `n` choices with the highest mean log-probability per token."""
    best: list[CompletionChoice] = []
    for first in range(0, len(completion.choices), request.num_choices):
        choices = completion.choices[first : first + request.num_choices]
        num_skipped = num_echoed_tokens[first // request.num_choices]
        mean_logprob = partial(_mean_logprob, num_skipped=num_skipped)
        best.extend(sorted(choices, key=mean_logprob, reverse=True)[: request.n or 1])

    # The selection needs the log-probabilities even if the request does not ask for them.
    updates: dict[str, object] = {} if request.logprobs is not None else {"logprobs": None}
    choices = [
        choice.model_copy(update={"index": index, **updates}) for index, choice in enumerate(best)
    ]
    return completion.model_copy(update={"choices": choices})


def _mean_logprob(choice: CompletionChoice, num_skipped: int) -> float:
    if choice.logprobs is None:
        return -math.inf

    generated = choice.logprobs.token_logprobs[num_skipped:]
    logprobs = [logprob for logprob in generated if logprob is not None]
    return sum(logprobs) / len(logprobs) if logprobs else -math.inf


def _make_echoes(
    session: ModelSession, request: CompletionRequest, prompts: Sequence[Prompt]
) -> list[Echo]:
    decode = session.model.tokenizer.decode
    return [
        Echo(prompt if isinstance(prompt, str) else decode(prompt), encoded.token_ids[0])
        for prompt, encoded in zip(request.prompt, prompts, strict=True)
    ]
