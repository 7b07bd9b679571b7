"""Aggregation of chat completion chunks into a chat completion."""

from __future__ import annotations

__all__ = ("ChatAccumulator", "aggregate")

from typing import final

from aiomlc.api.chat.stream import ChatCompletionStream
from aiomlc.api.generation.logprobs import join_entries
from aiomlc.api.protocol.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    Choice,
    ChoiceDeltaToolCall,
    ChoiceLogprobs,
    ChunkChoice,
    FinishReason,
    PromptLogprobs,
    Usage,
)
from aiomlc.api.protocol.messages import FunctionCall, ToolCall
from aiomlc.errors import RequestFailedError

_STREAM_CUT_OFF = "the stream ended before the completion was finished"


async def aggregate(chunks: ChatCompletionStream) -> ChatCompletion:
    """Return the chat completion that the chunks of one request add up to.

    Raises:
        RequestFailedError: If the stream ends before every choice has a finish reason.
    """
    total = ChatAccumulator()
    chunks.merge_deltas()
    async for chunk in chunks:
        total.add(chunk)

    return total.completion()


@final
class ChatAccumulator:
    """An accumulator of the chunks of one request."""

    def __init__(self) -> None:
        self._choices: dict[int, _ChoiceAccumulator] = {}
        self._usage: Usage | None = None
        self._last: ChatCompletionChunk | None = None
        self._prompt_logprobs: PromptLogprobs = None

    def add(self, chunk: ChatCompletionChunk) -> None:
        """Add the next chunk."""
        self._last = chunk
        self._usage = chunk.usage or self._usage
        self._prompt_logprobs = chunk.prompt_logprobs or self._prompt_logprobs
        for choice in chunk.choices:
            self._choices.setdefault(choice.index, _ChoiceAccumulator()).add(choice)

    def completion(self) -> ChatCompletion:
        """Return the chat completion that the added chunks make up.

        Raises:
            RequestFailedError: If a choice has no finish reason yet, or there are no choices.
        """
        if self._last is None or not self._choices:
            raise RequestFailedError(_STREAM_CUT_OFF)

        return ChatCompletion(
            id=self._last.id,
            created=self._last.created,
            model=self._last.model,
            choices=[self._choices[index].choice(index) for index in sorted(self._choices)],
            usage=self._usage,
            system_fingerprint=self._last.system_fingerprint,
            prompt_logprobs=self._prompt_logprobs,
        )


@final
class _ChoiceAccumulator:
    def __init__(self) -> None:
        self._content_deltas: list[str] = []
        self._reasoning_deltas: list[str] = []
        self._tool_call_deltas: list[list[ChoiceDeltaToolCall]] = []
        self._logprobs: list[ChoiceLogprobs] = []
        self._finish_reason: FinishReason | None = None

    def add(self, choice: ChunkChoice) -> None:
        self._content_deltas.append(choice.delta.content or "")
        self._reasoning_deltas.append(choice.delta.reasoning_content or "")
        self._finish_reason = choice.finish_reason or self._finish_reason
        if choice.logprobs is not None:
            self._logprobs.append(choice.logprobs)

        for call in choice.delta.tool_calls or ():
            if call.index == len(self._tool_call_deltas):
                self._tool_call_deltas.append([])  # The first delta of this tool call.

            self._tool_call_deltas[call.index].append(call)

    def choice(self, index: int) -> Choice:
        if self._finish_reason is None:
            raise RequestFailedError(_STREAM_CUT_OFF)

        text = "".join(self._content_deltas)
        message = ChatCompletionMessage(
            content=None if self._tool_call_deltas and not text else text,
            reasoning_content="".join(self._reasoning_deltas) or None,
            tool_calls=[_join_deltas(deltas) for deltas in self._tool_call_deltas] or None,
        )
        logprobs = join_entries(self._logprobs) if self._logprobs else None
        return Choice(
            index=index, message=message, logprobs=logprobs, finish_reason=self._finish_reason
        )


def _join_deltas(deltas: list[ChoiceDeltaToolCall]) -> ToolCall:
    first = deltas[0]
    arguments = "".join(delta.function.arguments or "" for delta in deltas)
    return ToolCall(
        id=first.id or "",
        function=FunctionCall(name=first.function.name or "", arguments=arguments),
    )
