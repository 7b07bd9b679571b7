"""The stream of a chat completion's chunks."""

from __future__ import annotations

__all__ = ("ChatCompletionStream",)

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, final

from anyio.streams.memory import MemoryObjectStreamStatistics

from aiomlc.api.chat.choice_parser import ChoiceDelta as ParsedDelta
from aiomlc.api.chat.choice_parser import ChoiceParser
from aiomlc.api.generation.logprobs import (
    LONG_LOGPROBS,
    FirstChoiceBuffer,
    LogprobsWriter,
    PromptWriter,
)
from aiomlc.api.observability.metrics import prompt_details, usage_counts, usage_extra
from aiomlc.api.protocol.base import construct_unchecked
from aiomlc.api.protocol.chat import ChatCompletionChunk, ChoiceDelta, ChunkChoice
from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.api.streams.visible_names import hides
from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.engine.stream import Delta, DeltaStream

# The names of the explicitly set fields of a plain text chunk.
_TEXT_DELTA_FIELDS = {"content"}
_TEXT_CHOICE_FIELDS = {"index", "delta", "finish_reason"}


@hides("has_logprobs", "merge_deltas", "put_usage", "receive_batch")
@final
class ChatCompletionStream(ChunkStream[Delta, ChatCompletionChunk]):
    """The stream of one chat completion's chunks, as an async iterator for one task.

    Yields `ChatCompletionChunk` objects: for each choice one with the role, the deltas, and one
    with the finish reason; finally one with the usage, if `stream_options` asks for it. Leaving
    the scope or `close` cancels the request unless it has finished; see `ChunkStream` for the
    errors that iteration raises.
    """

    def __init__(  # noqa: PLR0913 - called only by `AsyncCompletions.open`.
        self,
        deltas: DeltaStream,
        *,
        model: str,
        include_usage: bool,
        reports_usage: bool,
        make_parser: Callable[[], ChoiceParser] | None,
        logprobs_writer: LogprobsWriter | None,
        write_prompt_logprobs: PromptWriter | None,
        owner: object,
        extra: Mapping[str, Any] | None = None,
        embedded_tokens: Mapping[str, int] | None = None,
    ) -> None:
        has_logprobs = logprobs_writer is not None or write_prompt_logprobs is not None
        super().__init__(deltas.request_id, owner, has_logprobs=has_logprobs)
        self._deltas = deltas
        self._make_parser = make_parser  # None if all text is content.
        self._parsers: dict[int, ChoiceParser] = {}
        # Both are None if the request does not ask for them.
        self._logprobs_writer = logprobs_writer
        self._write_prompt_logprobs = write_prompt_logprobs
        self._first_choice_buffer = None if write_prompt_logprobs is None else FirstChoiceBuffer()
        stages = (make_parser, logprobs_writer, write_prompt_logprobs)
        self._include_usage = include_usage
        self._reports_usage = reports_usage  # In every chunk.
        self._is_plain_text = all(stage is None for stage in stages) and not reports_usage
        self._completion_tokens: dict[int, int] = {}  # So far, if reported; by choice.
        self._extra = extra  # Further fields of `usage.extra`.
        self._embedded_tokens = embedded_tokens or {}  # Of the prompt, by their names in `usage`.
        self._started: set[int] = set()  # Indices of the choices whose role chunk was yielded.
        self._last_deltas: dict[int, Delta] = {}  # By the index of each finished choice.
        self._common: dict[str, Any] = {
            "id": deltas.request_id,
            "created": int(time.time()),
            "model": model,
        }
        if include_usage:
            self._common["usage"] = None

        empty = ChatCompletionChunk.model_validate({**self._common, "choices": []})
        self._chunk_fields = dict(empty.__dict__)
        self._chunk_fields_set = empty.model_fields_set

    def __repr__(self) -> str:
        return f"<ChatCompletionStream of {self._deltas!r}>"

    def put_usage(self, usage: Mapping[str, Any]) -> None:
        """Add a chunk with this usage, for a request without choices."""
        fields = {**self._common, "choices": [], "usage": usage}
        self._ready.append(ChatCompletionChunk.model_validate(fields))

    def merge_deltas(self) -> None:
        """Let many tokens arrive as one chunk, for a reader that needs only the whole output."""
        self._deltas.merge_deltas()

    def _next_delta(self) -> Awaitable[Delta]:
        return self._deltas.__anext__()

    def _delta_statistics(self) -> MemoryObjectStreamStatistics:
        return self._deltas.statistics()

    def _cancel(self) -> None:
        self._deltas.close()

    def _delta_to_chunks(self, delta: Delta) -> Iterable[ChatCompletionChunk]:
        # The fast path: nearly every delta is plain text, and building its chunk dominates the
        # cost per token.
        if self._is_plain_text and delta.finish_reason is None and delta.choice in self._started:
            return (self._make_text_chunk(delta.choice, delta.text),) if delta.text else ()

        if self._first_choice_buffer is None:
            return self._make_chunks(delta)

        deltas = self._first_choice_buffer.put(delta)
        return chain.from_iterable(map(self._make_chunks, deltas))

    def _make_chunks(self, delta: Delta) -> Iterable[ChatCompletionChunk]:
        if self._reports_usage:
            self._completion_tokens[delta.choice] = delta.completion_tokens
            tokens = sum(self._completion_tokens.values())
            self._common["usage"] = usage_counts(delta.prompt_tokens, tokens)

        choice_deltas = self._parse_delta(delta)
        if (
            len(choice_deltas) == 1
            and choice_deltas[0].keys() == _TEXT_DELTA_FIELDS
            and delta.finish_reason is None
            and delta.choice in self._started
            and self._logprobs_writer is None
            and not self._reports_usage
        ):
            return (self._make_text_chunk(delta.choice, choice_deltas[0]["content"]),)

        return self._choice_deltas_to_chunks(delta, choice_deltas)

    def _is_large(self, delta: Delta) -> bool:
        return len(delta.prompt_logprobs) > LONG_LOGPROBS

    def _choice_deltas_to_chunks(
        self, delta: Delta, choice_deltas: list[dict[str, Any]]
    ) -> Iterator[ChatCompletionChunk]:
        index = delta.choice
        if index not in self._started:
            extra = {} if self._started else self._prompt_fields(delta)
            self._started.add(index)
            yield self._make_chunk(
                index, {"role": "assistant", "content": ""}, logprobs=(), extra=extra
            )

        if delta.logprobs and not choice_deltas:
            # The text of these tokens is held back; their log-probabilities are not.
            choice_deltas = [{"content": ""}]

        logprobs = delta.logprobs
        for choice_delta in choice_deltas:
            yield self._make_chunk(index, choice_delta, logprobs=logprobs)
            logprobs = ()

        if delta.finish_reason is None:
            return

        yield self._make_chunk(index, {}, finish_reason=self._finish_reason(delta))
        self._last_deltas[index] = delta
        if self._include_usage and len(self._last_deltas) == self._deltas.num_choices:
            yield ChatCompletionChunk.model_validate(
                {**self._common, "choices": [], "usage": self._usage()}
            )

    def _prompt_fields(self, delta: Delta) -> dict[str, Any]:
        # The log-probabilities are incomplete if a time limit ended the request during prefill.
        is_complete = len(delta.prompt_logprobs) == delta.prompt_tokens - 1
        if self._write_prompt_logprobs is None or not is_complete:
            return {}

        return {"prompt_logprobs": self._write_prompt_logprobs(delta.prompt_logprobs)}

    def _parse_delta(self, delta: Delta) -> list[ParsedDelta]:
        if self._make_parser is None:
            return [{"content": delta.text}] if delta.text else []

        parser = self._parsers.get(delta.choice)
        if parser is None:
            parser = self._parsers[delta.choice] = self._make_parser()

        return parser.parse(delta)

    def _finish_reason(self, delta: Delta) -> str | None:
        parser = self._parsers.get(delta.choice)
        has_calls = parser is not None and parser.has_calls
        return "tool_calls" if has_calls and delta.finish_reason == "stop" else delta.finish_reason

    def _usage(self) -> dict[str, Any]:
        # The prompt is computed once, for the first choice, so it counts once.
        first = self._last_deltas[0]
        completion_tokens = sum(delta.completion_tokens for delta in self._last_deltas.values())
        timings = [delta.timing for delta in self._last_deltas.values() if delta.timing]
        counts = [parser.reasoning_tokens for parser in self._parsers.values()]
        reasoning = [count for count in counts if count is not None]
        details = {"reasoning_tokens": sum(reasoning)} if reasoning else None
        extra = usage_extra(first.prompt_tokens, completion_tokens, first.cached_tokens, timings)
        return {
            "completion_tokens_details": details,
            "extra": extra if self._extra is None else {**(extra or {}), **self._extra},
            **usage_counts(first.prompt_tokens, completion_tokens),
            "prompt_tokens_details": prompt_details(first.cached_tokens, self._embedded_tokens),
        }

    def _make_chunk(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        logprobs: Sequence[TokenLogprob] | None = None,
        finish_reason: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> ChatCompletionChunk:
        # Validating one nested dict is twice as fast as calling a constructor per nested model.
        choice: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": finish_reason}
        if self._logprobs_writer is not None and logprobs is not None:
            choice["logprobs"] = self._logprobs_writer.write(logprobs)

        return ChatCompletionChunk.model_validate(
            {**self._common, "choices": [choice], **(extra or {})}
        )

    def _make_text_chunk(self, index: int, text: str) -> ChatCompletionChunk:
        # Nearly every chunk is a text chunk, so these are built without validation.
        delta_fields = {
            "role": None,
            "content": text,
            "reasoning_content": None,
            "tool_calls": None,
        }
        delta = construct_unchecked(ChoiceDelta, delta_fields, _TEXT_DELTA_FIELDS)
        choice = construct_unchecked(
            ChunkChoice,
            {"index": index, "delta": delta, "logprobs": None, "finish_reason": None},
            _TEXT_CHOICE_FIELDS,
        )
        fields = self._chunk_fields.copy()
        fields["choices"] = [choice]
        return construct_unchecked(ChatCompletionChunk, fields, self._chunk_fields_set)
