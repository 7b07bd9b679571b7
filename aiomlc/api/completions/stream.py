"""The stream of a text completion's chunks, and their aggregation."""

from __future__ import annotations

__all__ = ("CompletionStream", "aggregate_completion")

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, final

from anyio.streams.memory import MemoryObjectStreamStatistics

from aiomlc.api.completions.logprobs import CompletionLogprobsWriter, Echo
from aiomlc.api.generation.logprobs import LONG_LOGPROBS, FirstChoiceBuffer, PromptWriter
from aiomlc.api.observability.metrics import usage_counts, usage_extra
from aiomlc.api.protocol.base import construct_unchecked
from aiomlc.api.protocol.completion import Completion, CompletionChoice, CompletionLogprobs
from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.api.streams.visible_names import hides
from aiomlc.errors import AiomlcError, RequestFailedError
from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.engine.statistics import RequestTiming
from aiomlc.runtime.engine.stream import Delta, DeltaStream


@hides("has_logprobs", "merge_deltas", "receive_batch")
@final
class CompletionStream(ChunkStream[Delta, Completion]):
    """The stream of one request's text completions, as an async iterator for one task.

    Yields `Completion` objects, each with one choice that has new text or a finish reason; the
    prompts follow one another. The last chunk has the usage, if `stream_options` asks for it.
    Leaving the scope or `close` cancels the prompts that have not finished, and so does an error
    of one prompt; see `ChunkStream` for the errors that iteration raises.
    """

    def __init__(  # noqa: PLR0913 - called only by `AsyncTextCompletions.open`.
        self,
        request_id: str,
        streams: Sequence[DeltaStream],
        *,
        echoes: Sequence[Echo],
        model: str,
        include_usage: bool,
        reports_usage: bool,
        drops_output: bool,
        write_prompt_logprobs: PromptWriter | None,
        make_logprobs_writer: Callable[[], CompletionLogprobsWriter] | None,
        owner: object,
    ) -> None:
        has_logprobs = make_logprobs_writer is not None or write_prompt_logprobs is not None
        super().__init__(request_id, owner, has_logprobs=has_logprobs)
        self._streams = streams
        self._echoes = echoes  # One per prompt, or empty.
        self._include_usage = include_usage
        self._reports_usage = reports_usage  # In every chunk.
        # Of this prompt so far, if they are reported; by choice.
        self._unfinished_tokens: dict[int, int] = {}
        self._drops_output = drops_output
        # Both are None if the request does not ask for them.
        self._make_logprobs_writer = make_logprobs_writer
        self._write_prompt_logprobs = write_prompt_logprobs
        self._logprobs_writers: dict[int, CompletionLogprobsWriter] = {}
        self._prompt_index = 0  # The prompt whose chunks are yielded.
        self._num_finished = 0  # Finished choices of this prompt.
        self._started: set[int] = set()  # Indices of the choices that have yielded a chunk.
        self._first_choice_buffer = self._make_buffer()
        #: For each finished prompt, the number of its tokens in the choices' log-probabilities.
        self.num_echoed_tokens: list[int] = []
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self._finished_tokens = 0  # Completion tokens of the finished prompts.
        self._finished_prompts = 0  # Their prompt tokens.
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

    def merge_deltas(self) -> None:
        """Let many tokens arrive as one chunk, for a reader that needs only the whole output."""
        for stream in self._streams:
            stream.merge_deltas()

    async def _next_delta(self) -> Delta:
        try:
            delta = await self._stream.__anext__()
        except AiomlcError:
            self._cancel()  # The other prompts are useless without this one.
            raise

        return _without_output(delta) if self._drops_output else delta

    def _delta_statistics(self) -> MemoryObjectStreamStatistics:
        counts = zip(*(stream.statistics() for stream in self._streams), strict=True)
        return MemoryObjectStreamStatistics(*map(sum, counts))

    def _cancel(self) -> None:
        for stream in self._streams:
            stream.close()

    @property
    def _stream(self) -> DeltaStream:
        return self._streams[min(self._prompt_index, len(self._streams) - 1)]

    def _make_buffer(self) -> FirstChoiceBuffer | None:
        echoes_logprobs = self._echoes and self._make_logprobs_writer is not None
        needs_prompt_logprobs = self._write_prompt_logprobs is not None or echoes_logprobs
        return FirstChoiceBuffer() if needs_prompt_logprobs else None

    def _is_large(self, delta: Delta) -> bool:
        has_logprobs = self._make_logprobs_writer is not None
        generated = len(delta.logprobs) if has_logprobs else 0
        return len(delta.prompt_logprobs) + generated > LONG_LOGPROBS

    def _delta_to_chunks(self, delta: Delta) -> Iterable[Completion]:
        if self._first_choice_buffer is None:
            return self._make_chunks(delta)

        deltas = self._first_choice_buffer.put(delta)
        return chain.from_iterable(map(self._make_chunks, deltas))

    def _make_chunks(self, delta: Delta) -> Iterator[Completion]:
        if self._reports_usage:
            self._common["usage"] = self._usage_so_far(delta)

        num_choices = self._stream.num_choices
        index = self._prompt_index * num_choices + delta.choice
        is_first = index not in self._started
        self._started.add(index)
        text = (
            self._echoes[self._prompt_index].text + delta.text
            if is_first and self._echoes
            else delta.text
        )
        prompt_fields = self._prompt_fields(delta) if is_first else {}
        if text or delta.logprobs or prompt_fields:
            logprobs = self._logprobs_field(index, delta, is_first=is_first)
            yield self._make_chunk({"index": index, "text": text, **logprobs, **prompt_fields})

        if delta.finish_reason is None:
            return

        self._count_finished_choice(delta, num_choices)
        yield self._make_chunk({"index": index, "text": "", "finish_reason": delta.finish_reason})
        if self._include_usage and self._prompt_index == len(self._streams):
            usage = {
                "extra": usage_extra(
                    self._prompt_tokens, self._completion_tokens, self._cached_tokens, self._timings
                ),
                **usage_counts(self._prompt_tokens, self._completion_tokens),
                "prompt_tokens_details": {"cached_tokens": self._cached_tokens},
            }
            yield Completion.model_validate({**self._common, "choices": [], "usage": usage})

    def _usage_so_far(self, delta: Delta) -> dict[str, int]:
        """Return the counts up to a delta, which belongs to a choice that has not finished."""
        self._unfinished_tokens[delta.choice] = delta.completion_tokens
        generated = self._finished_tokens + sum(self._unfinished_tokens.values())
        return usage_counts(self._finished_prompts + delta.prompt_tokens, generated)

    def _prompt_logprobs(self, delta: Delta) -> Sequence[TokenLogprob] | None:
        """Return the log-probabilities of the prompt's tokens from the second on.

        None if they are not requested, or a time limit ended the request during prefill.
        """
        prompt = None if self._first_choice_buffer is None else self._first_choice_buffer.prompt
        return prompt if prompt is not None and len(prompt) == delta.prompt_tokens - 1 else None

    def _prompt_fields(self, delta: Delta) -> dict[str, Any]:
        prompt = self._prompt_logprobs(delta)
        if self._write_prompt_logprobs is None or prompt is None:
            return {}

        return {"prompt_logprobs": self._write_prompt_logprobs(prompt)}

    def _logprobs_field(self, index: int, delta: Delta, *, is_first: bool) -> dict[str, Any]:
        if self._make_logprobs_writer is None:
            return {}

        if index not in self._logprobs_writers:
            self._logprobs_writers[index] = self._make_logprobs_writer()

        writer = self._logprobs_writers[index]
        prompt = self._prompt_logprobs(delta) if is_first and self._echoes else None
        # The prompt's come first, because the writer counts characters.
        echo = None if prompt is None else self._echoes[self._prompt_index]
        echoed = {} if echo is None else writer.write_prompt(echo, prompt or ())
        lists = writer.write(delta.logprobs)
        lists = {name: echoed.get(name, []) + entries for name, entries in lists.items()}
        # Not validated: a long prompt has tens of thousands of numbers.
        return {"logprobs": construct_unchecked(CompletionLogprobs, lists, set(lists))}

    def _count_finished_choice(self, delta: Delta, num_choices: int) -> None:
        if delta.timing is not None:
            self._timings.append(delta.timing)

        # The prompt is computed once, for the first choice, so it counts once.
        if delta.choice == 0:
            self._prompt_tokens += delta.prompt_tokens
            self._cached_tokens += delta.cached_tokens
            has_echoed_logprobs = self._echoes and self._prompt_logprobs(delta) is not None
            self.num_echoed_tokens.append(delta.prompt_tokens if has_echoed_logprobs else 0)

        self._completion_tokens += delta.completion_tokens
        self._num_finished += 1
        if self._num_finished == num_choices:
            self._num_finished = 0
            self._prompt_index += 1
            self._unfinished_tokens.clear()
            self._finished_tokens = self._completion_tokens
            self._finished_prompts = self._prompt_tokens
            self._first_choice_buffer = self._make_buffer()

    def _make_chunk(self, choice: dict[str, Any]) -> Completion:
        return Completion.model_validate({**self._common, "choices": [choice]})


def _without_output(delta: Delta) -> Delta:
    """Return what a delta says about the prompt."""
    finish_reason = None if delta.finish_reason is None else "length"
    return delta._replace(
        text="", token_ids=(), logprobs=(), completion_tokens=0, finish_reason=finish_reason
    )


async def aggregate_completion(chunks: CompletionStream) -> Completion:
    """Return the completion that the chunks of one request add up to.

    Raises:
        RequestFailedError: If the stream ends before its last chunk.
    """
    choices: dict[int, list[CompletionChoice]] = {}
    last: Completion | None = None
    chunks.merge_deltas()
    async for chunk in chunks:
        last = chunk
        for choice in chunk.choices:
            choices.setdefault(choice.index, []).append(choice)

    if last is None or last.usage is None:
        raise RequestFailedError("the stream ended before the completion was finished")

    joined = [_join_choice(choices[index]) for index in sorted(choices)]
    return last.model_copy(update={"choices": joined})


def _join_choice(deltas: Sequence[CompletionChoice]) -> CompletionChoice:
    logprobs = [delta.logprobs for delta in deltas if delta.logprobs is not None]
    return CompletionChoice(
        index=deltas[0].index,
        text="".join(delta.text for delta in deltas),
        logprobs=_join_logprobs(logprobs) if logprobs else None,
        finish_reason=deltas[-1].finish_reason,
        prompt_logprobs=next(filter(None, (delta.prompt_logprobs for delta in deltas)), None),
    )


def _join_logprobs(deltas: Sequence[CompletionLogprobs]) -> CompletionLogprobs:
    names = tuple(CompletionLogprobs.model_fields)
    lists = {name: [entry for delta in deltas for entry in getattr(delta, name)] for name in names}
    return construct_unchecked(CompletionLogprobs, lists, set(names))
