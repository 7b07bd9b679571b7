"""`engine.completions`: texts that the model goes on with, without a chat template."""

from __future__ import annotations

__all__ = ("AsyncTextCompletions", "Prompt")

import math
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Literal, Unpack, final, overload

from aiomlc.api.completions.logprobs import CompletionLogprobsWriter, Echo
from aiomlc.api.completions.stream import CompletionStream, aggregate_completion
from aiomlc.api.generation.logprobs import prompt_writer
from aiomlc.api.generation.options import CompletionOptions
from aiomlc.api.generation.structured_output import response_grammar
from aiomlc.api.protocol.completion import (
    Completion,
    CompletionChoice,
    CompletionRequest,
    parse_completion_request,
)
from aiomlc.api.session.session import ModelSession, SessionProvider
from aiomlc.errors import AiomlcError, BadRequestError
from aiomlc.runtime.engine.stream import DeltaStream
from aiomlc.runtime.tokenization.fim import find_fim_tokens

Prompt = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]


@final
class AsyncTextCompletions:
    """`engine.completions`."""

    def __init__(self, service: SessionProvider) -> None:
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
        `request_id`, the n-th of several is the request `{request_id}-{n}`, from 0. `best_of`
        generates more choices than the `n` it tells, and its tokens count. `suffix` is for models
        whose vocabulary has tokens to fill a gap with.

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
            answer = await aggregate_completion(chunks)

        return _best(answer, request, chunks.echoed_tokens) if request.is_selective else answer

    async def open(self, request: CompletionRequest) -> CompletionStream:
        """The stream of a parsed request, also of one that did not ask for a stream.

        Raises:
            AiomlcError: as `create`.
        """
        session = await self._service.session()
        prompts = [await session.prompt_ids(prompt) for prompt in request.prompt]
        if request.suffix is not None:
            prompts, request = await _with_suffix(session, prompts, request, request.suffix)

        for prompt_ids in prompts:
            session.check_prompt(prompt_ids)

        form = response_grammar(request.response_format, session.model)
        grammar = await session.compile(form, "response_format")
        # No await from here on: a cancelled caller leaves nothing behind.
        request_id = request.request_id or f"cmpl-{uuid.uuid4().hex}"
        return CompletionStream(
            request_id,
            _open_all(session, prompts, request, request_id, grammar),
            echoes=_echoes(session, request, prompts) if request.echo else [],
            model=request.model or session.model.model_name,
            include_usage=request.include_usage or not request.stream,
            write_prompt=prompt_writer(request, session.model.tokenizer),
            open_logprobs=(
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


def _open_all(
    session: ModelSession,
    prompts: Sequence[Sequence[int]],
    request: CompletionRequest,
    request_id: str,
    grammar: object,
) -> list[DeltaStream]:
    streams: list[DeltaStream] = []
    try:
        for index, prompt_ids in enumerate(prompts):
            label = request_id if len(prompts) == 1 else f"{request_id}-{index}"
            streams.append(
                session.open_stream(
                    prompt_ids,
                    request,
                    label,
                    request.num_choices,
                    grammar,
                    operation="text_completion",
                )
            )
    except AiomlcError:
        for stream in streams:
            stream.close()
        raise

    return streams


async def _with_suffix(
    session: ModelSession, prompts: Sequence[list[int]], request: CompletionRequest, suffix: str
) -> tuple[list[list[int]], CompletionRequest]:
    """The prompts that ask for what is before the suffix, and where that ends."""
    tokens = find_fim_tokens(session.model.tokenizer)
    if tokens is None:
        raise BadRequestError(
            "suffix: the model's vocabulary has no tokens to fill a gap with", param="suffix"
        )

    suffix_ids = await session.encode(suffix)
    ends = (*request.stop_token_ids, *tokens.ends)
    return (
        [tokens.prompt(prompt, suffix_ids) for prompt in prompts],
        request.model_copy(update={"stop_token_ids": ends}),
    )


def _best(
    answer: Completion, request: CompletionRequest, echoed_tokens: Sequence[int]
) -> Completion:
    """Of each prompt's choices those whose tokens are the likeliest, on average."""
    wanted = request.n or 1
    best: list[CompletionChoice] = []
    for first in range(0, len(answer.choices), request.num_choices):
        choices = answer.choices[first : first + request.num_choices]
        skipped = echoed_tokens[first // request.num_choices]
        mean_logprob = partial(_mean_logprob, skipped=skipped)
        best.extend(sorted(choices, key=mean_logprob, reverse=True)[:wanted])

    hidden: dict[str, object] = {} if request.logprobs is not None else {"logprobs": None}
    told = [
        choice.model_copy(update={"index": index, **hidden}) for index, choice in enumerate(best)
    ]
    return answer.model_copy(update={"choices": told})


def _mean_logprob(choice: CompletionChoice, skipped: int) -> float:
    told = [] if choice.logprobs is None else choice.logprobs.token_logprobs[skipped:]
    logprobs = [logprob for logprob in told if logprob is not None]
    return sum(logprobs) / len(logprobs) if logprobs else -math.inf


def _echoes(
    session: ModelSession, request: CompletionRequest, prompts: Sequence[Sequence[int]]
) -> list[Echo]:
    decode = session.model.tokenizer.decode
    return [
        Echo(prompt if isinstance(prompt, str) else decode(prompt), prompt_ids[0])
        for prompt, prompt_ids in zip(request.prompt, prompts, strict=True)
    ]
