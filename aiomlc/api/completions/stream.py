"""Plain completions as a stream of OpenAI's events, and what they add up to."""

from __future__ import annotations

__all__ = ("CompletionStream", "aggregate_completion")

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, final

from aiomlc.api.completions.logprobs import CompletionLogprobsWriter, Echo
from aiomlc.api.generation.logprobs import FirstChoiceBuffer, PromptWriter
from aiomlc.api.observability.metrics import usage_extra
from aiomlc.api.protocol.completion import Completion, CompletionChoice, CompletionLogprobs
from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.errors import AiomlcError, RequestFailedError
from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.engine.statistics import RequestTiming
from aiomlc.runtime.engine.stream import Delta, DeltaStream


@final
class CompletionStream(ChunkStream[Delta, Completion]):
    """The pieces of the texts of one request, in OpenAI's form, prompt by prompt."""

    def __init__(  # noqa: PLR0913 - each is said once, by `open`.
        self,
        request_id: str,
        streams: Sequence[DeltaStream],
        *,
        echoes: Sequence[Echo],
        model: str,
        include_usage: bool,
        write_prompt: PromptWriter | None,
        open_logprobs: Callable[[], CompletionLogprobsWriter] | None,
        owner: object,
    ) -> None:
        super().__init__(request_id, owner)
        self._streams = streams
        self._echoes = echoes  # Of each prompt, or none.
        self._include_usage = include_usage
        self._open_logprobs = open_logprobs  # None: the request does not ask for them.
        self._writers: dict[int, CompletionLogprobsWriter] = {}
        self._index = 0  # Of the prompt that is told.
        self._begun: set[int] = set()
        self._write_prompt = write_prompt  # None: its log-probabilities are not asked for.
        self._prompt_gate = self._new_gate()
        #: Entries of each prompt in the log-probabilities of its choices, once it is told.
        self.echoed_tokens: list[int] = []
        self._num_ended = 0  # Of that prompt's choices.
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
        try:
            return await self._stream.__anext__()
        except AiomlcError:
            self._cancel()  # One answer: without this prompt the others are of no use.
            raise

    def _cancel(self) -> None:
        for stream in self._streams:
            stream.close()

    @property
    def _stream(self) -> DeltaStream:
        return self._streams[min(self._index, len(self._streams) - 1)]

    def _new_gate(self) -> FirstChoiceBuffer | None:
        is_scored = self._write_prompt is not None or (self._echoes and self._open_logprobs)
        return FirstChoiceBuffer() if is_scored else None

    def _chunks(self, delta: Delta) -> Iterable[Completion]:
        if self._prompt_gate is None:
            return self._chunks_of(delta)

        return chain.from_iterable(map(self._chunks_of, self._prompt_gate.put(delta)))

    def _chunks_of(self, delta: Delta) -> Iterator[Completion]:
        num_choices = self._stream.num_choices
        index = self._index * num_choices + delta.choice
        is_first = index not in self._begun
        self._begun.add(index)
        text = (
            self._echoes[self._index].text + delta.text if is_first and self._echoes else delta.text
        )
        more = self._prompt_fields(delta) if is_first else {}
        if text or delta.logprobs or more:
            logprobs = self._logprobs(index, delta, is_first=is_first)
            yield self._chunk({"index": index, "text": text, **logprobs, **more})

        if delta.finish_reason is None:
            return

        self._count(delta, num_choices)
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

    def _scored_prompt(self, delta: Delta) -> tuple[TokenLogprob, ...] | None:
        """The prompt's tokens from the second on; None if it was not computed in time."""
        prompt = None if self._prompt_gate is None else self._prompt_gate.prompt
        return prompt if prompt is not None and len(prompt) == delta.prompt_tokens - 1 else None

    def _prompt_fields(self, delta: Delta) -> dict[str, Any]:
        prompt = self._scored_prompt(delta)
        if self._write_prompt is None or prompt is None:
            return {}

        return {"prompt_logprobs": self._write_prompt(prompt)}

    def _logprobs(self, index: int, delta: Delta, *, is_first: bool) -> dict[str, Any]:
        if self._open_logprobs is None:
            return {}

        if index not in self._writers:
            self._writers[index] = self._open_logprobs()

        writer = self._writers[index]
        prompt = self._scored_prompt(delta) if is_first and self._echoes else None
        if prompt is None:
            return {"logprobs": writer.write(delta.logprobs)}

        echoed = writer.write_prompt(self._echoes[self._index], prompt)
        answer = writer.write(delta.logprobs)
        return {"logprobs": {name: echoed[name] + answer[name] for name in echoed}}

    def _count(self, delta: Delta, num_choices: int) -> None:
        if delta.timing is not None:
            self._timings.append(delta.timing)

        # The prompt counts once, as it was computed once: for the first choice.
        if delta.choice == 0:
            self._prompt_tokens += delta.prompt_tokens
            self._cached_tokens += delta.cached_tokens
            is_told = self._echoes and self._scored_prompt(delta) is not None
            self.echoed_tokens.append(delta.prompt_tokens if is_told else 0)

        self._completion_tokens += delta.completion_tokens
        self._num_ended += 1
        if self._num_ended == num_choices:
            self._num_ended = 0
            self._index += 1
            self._prompt_gate = self._new_gate()

    def _chunk(self, choice: dict[str, Any]) -> Completion:
        return Completion.model_validate({**self._common, "choices": [choice]})


async def aggregate_completion(chunks: CompletionStream) -> Completion:
    """The whole texts that the chunks of one request add up to.

    Raises:
        RequestFailedError: the stream ended before the answer did.
    """
    choices: dict[int, list[CompletionChoice]] = {}
    last: Completion | None = None
    async for chunk in chunks:
        last = chunk
        for choice in chunk.choices:
            choices.setdefault(choice.index, []).append(choice)

    if last is None or last.usage is None:
        raise RequestFailedError("the stream ended before the answer did")

    whole = [_whole(choices[index]) for index in sorted(choices)]
    return last.model_copy(update={"choices": whole})


def _whole(pieces: Sequence[CompletionChoice]) -> CompletionChoice:
    logprobs = [piece.logprobs for piece in pieces if piece.logprobs is not None]
    return CompletionChoice(
        index=pieces[0].index,
        text="".join(piece.text for piece in pieces),
        logprobs=_joined(logprobs) if logprobs else None,
        finish_reason=pieces[-1].finish_reason,
        prompt_logprobs=next(filter(None, (piece.prompt_logprobs for piece in pieces)), None),
    )


def _joined(pieces: Sequence[CompletionLogprobs]) -> CompletionLogprobs:
    return CompletionLogprobs(
        text_offset=[offset for piece in pieces for offset in piece.text_offset],
        token_logprobs=[logprob for piece in pieces for logprob in piece.token_logprobs],
        tokens=[token for piece in pieces for token in piece.tokens],
        top_logprobs=[top for piece in pieces for top in piece.top_logprobs],
    )
