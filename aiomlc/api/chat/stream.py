"""A chat completion as a stream of OpenAI's chunks."""

from __future__ import annotations

__all__ = ("ChatCompletionStream",)

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, final

from aiomlc.api.chat.reasoning import ReasoningParser
from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.api.generation.logprobs import FirstChoiceBuffer, LogprobsWriter, PromptWriter
from aiomlc.api.observability.metrics import usage_extra
from aiomlc.api.protocol.base import construct_unchecked
from aiomlc.api.protocol.chat import ChatCompletionChunk, ChoiceDelta, ChunkChoice
from aiomlc.api.streams.chunk_stream import ChunkStream
from aiomlc.runtime.engine.core_protocol import TokenLogprob
from aiomlc.runtime.engine.stream import Delta, DeltaStream

_TEXT = {"content"}
_CHOICE = {"index", "delta", "finish_reason"}


@final
class ChatCompletionStream(ChunkStream[Delta, ChatCompletionChunk]):
    """The chunks of an answer's choices, in OpenAI's form."""

    def __init__(  # noqa: PLR0913 - each is said once, by `open`.
        self,
        deltas: DeltaStream,
        *,
        model: str,
        include_usage: bool,
        open_calls: Callable[[], ToolCallParser] | None,
        open_reasoning: Callable[[], ReasoningParser] | None,
        logprobs: LogprobsWriter | None,
        write_prompt: PromptWriter | None,
        owner: object,
    ) -> None:
        super().__init__(deltas.request_id, owner)
        self._deltas = deltas
        self._open_calls = open_calls  # None: no tools are offered.
        self._tool_parsers: dict[int, ToolCallParser] = {}
        self._open_reasoning = open_reasoning  # None: thoughts are not looked for.
        self._reasoning_parsers: dict[int, ReasoningParser] = {}
        self._logprobs = logprobs  # None: the request does not ask for them.
        self._write_prompt = write_prompt  # None: its log-probabilities are not asked for.
        self._prompt_gate = None if write_prompt is None else FirstChoiceBuffer()
        parts = (open_calls, open_reasoning, logprobs, write_prompt)
        self._is_plain = all(part is None for part in parts)  # A chunk is a piece of text.
        self._include_usage = include_usage
        self._started: set[int] = set()
        self._last_deltas: dict[int, Delta] = {}  # Of the choices that ended.
        self._common: dict[str, Any] = {
            "id": deltas.request_id,
            "created": int(time.time()),
            "model": model,
        }
        if include_usage:
            self._common["usage"] = None

        empty = ChatCompletionChunk.model_validate({**self._common, "choices": []})
        self._fields = dict(empty.__dict__)
        self._given = empty.model_fields_set

    def __repr__(self) -> str:
        return f"<ChatCompletionStream of {self._deltas!r}>"

    def _next_delta(self) -> Awaitable[Delta]:
        return self._deltas.__anext__()

    def _cancel(self) -> None:
        self._deltas.close()

    def _chunks(self, delta: Delta) -> Iterable[ChatCompletionChunk]:
        # Nearly every delta is a piece of plain text, and this is what costs most per token.
        if self._is_plain and delta.finish_reason is None and delta.choice in self._started:
            return (self._text_chunk(delta.choice, delta.text),) if delta.text else ()

        if self._prompt_gate is None:
            return self._chunks_of(delta)

        return chain.from_iterable(map(self._chunks_of, self._prompt_gate.put(delta)))

    def _chunks_of(self, delta: Delta) -> Iterable[ChatCompletionChunk]:
        choice_deltas = self._choice_deltas(delta)
        if (
            len(choice_deltas) == 1
            and choice_deltas[0].keys() == _TEXT
            and delta.finish_reason is None
            and delta.choice in self._started
            and self._logprobs is None
        ):
            return (self._text_chunk(delta.choice, choice_deltas[0]["content"]),)

        return self._all_chunks(delta, choice_deltas)

    def _all_chunks(
        self, delta: Delta, choice_deltas: list[dict[str, Any]]
    ) -> Iterator[ChatCompletionChunk]:
        index = delta.choice
        if index not in self._started:
            more = {} if self._started else self._prompt_fields(delta)
            self._started.add(index)
            yield self._chunk(index, {"role": "assistant", "content": ""}, logprobs=(), more=more)

        if delta.logprobs and not choice_deltas:
            choice_deltas = [{"content": ""}]  # The entry is told now; its text later, or never.

        logprobs = delta.logprobs
        for choice_delta in choice_deltas:
            yield self._chunk(index, choice_delta, logprobs=logprobs)
            logprobs = ()

        if delta.finish_reason is None:
            return

        yield self._chunk(index, {}, finish_reason=self._finish_reason(delta))
        self._last_deltas[index] = delta
        if self._include_usage and len(self._last_deltas) == self._deltas.num_choices:
            yield ChatCompletionChunk.model_validate(
                {**self._common, "choices": [], "usage": self._usage()}
            )

    def _prompt_fields(self, delta: Delta) -> dict[str, Any]:
        # A time limit may have ended it before its prompt was computed.
        if self._write_prompt is None or len(delta.prompt_logprobs) != delta.prompt_tokens - 1:
            return {}

        return {"prompt_logprobs": self._write_prompt(delta.prompt_logprobs)}

    def _choice_deltas(self, delta: Delta) -> list[dict[str, Any]]:
        if self._open_reasoning is None:
            return self._answer_deltas(delta, delta.text)

        thought, text = self._think(delta, self._open_reasoning)
        deltas = self._answer_deltas(delta, text)
        return [{"reasoning_content": thought}, *deltas] if thought else deltas

    def _think(
        self, delta: Delta, open_reasoning: Callable[[], ReasoningParser]
    ) -> tuple[str, str]:
        parser = self._reasoning_parsers.get(delta.choice)
        if parser is None:
            parser = self._reasoning_parsers[delta.choice] = open_reasoning()

        thought, text = parser.put(delta.text, len(delta.token_ids))
        if delta.finish_reason is not None:
            last_thought, last_text = parser.finish()
            thought, text = thought + last_thought, text + last_text

        return thought, text

    def _answer_deltas(self, delta: Delta, text: str) -> list[dict[str, Any]]:
        if self._open_calls is None:
            return [{"content": text}] if text else []

        if delta.choice not in self._tool_parsers:
            self._tool_parsers[delta.choice] = self._open_calls()

        parser = self._tool_parsers[delta.choice]
        choice_deltas = parser.put(text)
        if delta.finish_reason is not None:
            choice_deltas += parser.finish(is_cut=delta.finish_reason == "length")

        return choice_deltas

    def _finish_reason(self, delta: Delta) -> str | None:
        parser = self._tool_parsers.get(delta.choice)
        calls_tools = parser is not None and parser.num_calls > 0
        return (
            "tool_calls" if calls_tools and delta.finish_reason == "stop" else delta.finish_reason
        )

    def _usage(self) -> dict[str, Any]:
        # The prompt counts once, as it was computed once: for the first choice.
        first = self._last_deltas[0]
        completion_tokens = sum(delta.completion_tokens for delta in self._last_deltas.values())
        timings = [delta.timing for delta in self._last_deltas.values() if delta.timing]
        reasoning_tokens = sum(parser.num_tokens for parser in self._reasoning_parsers.values())
        details = {"reasoning_tokens": reasoning_tokens} if self._open_reasoning else None
        return {
            "completion_tokens_details": details,
            "extra": usage_extra(
                first.prompt_tokens, completion_tokens, first.cached_tokens, timings
            ),
            "prompt_tokens": first.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": first.prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": first.cached_tokens},
        }

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        logprobs: tuple[TokenLogprob, ...] | None = None,
        finish_reason: str | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> ChatCompletionChunk:
        # One call that validates a dict is twice as fast as a constructor per nested model.
        choice: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": finish_reason}
        if self._logprobs is not None and logprobs is not None:
            choice["logprobs"] = self._logprobs.write(logprobs)

        return ChatCompletionChunk.model_validate(
            {**self._common, "choices": [choice], **(more or {})}
        )

    def _text_chunk(self, index: int, text: str) -> ChatCompletionChunk:
        # Nearly every chunk is one of these, so they are put together without validation.
        fields_of_gain = {
            "role": None,
            "content": text,
            "reasoning_content": None,
            "tool_calls": None,
        }
        gain = construct_unchecked(ChoiceDelta, fields_of_gain, _TEXT)
        choice = construct_unchecked(
            ChunkChoice,
            {"index": index, "delta": gain, "logprobs": None, "finish_reason": None},
            _CHOICE,
        )
        fields = self._fields.copy()
        fields["choices"] = [choice]
        return construct_unchecked(ChatCompletionChunk, fields, self._given)
