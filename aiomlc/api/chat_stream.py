"""A chat completion as a stream of OpenAI's chunks."""

from __future__ import annotations

__all__ = ("ChatCompletionStream",)

import time
from collections.abc import Iterable, Iterator
from typing import Any, final

from aiomlc.api.chunk_stream import ChunkStream
from aiomlc.api.logprobs import LogprobsWriter
from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.api.tool_parser import ToolCallParser
from aiomlc.runtime.core_protocol import TokenLogprob
from aiomlc.runtime.stream import Delta, DeltaStream


@final
class ChatCompletionStream(ChunkStream[ChatCompletionChunk]):
    """The chunks of one answer, in OpenAI's form."""

    def __init__(
        self,
        deltas: DeltaStream,
        *,
        model: str,
        include_usage: bool,
        tool_parser: ToolCallParser | None,
        logprobs: LogprobsWriter | None,
        owner: object,
    ) -> None:
        super().__init__(deltas.request_id, owner)
        self._deltas = deltas
        self._tool_parser = tool_parser
        self._logprobs = logprobs  # None: the request does not ask for them.
        self._include_usage = include_usage
        self._started = False
        self._common: dict[str, Any] = {
            "id": deltas.request_id,
            "created": int(time.time()),
            "model": model,
        }
        if include_usage:
            self._common["usage"] = None

    def __repr__(self) -> str:
        return f"<ChatCompletionStream of {self._deltas!r}>"

    async def _receive(self) -> Iterable[ChatCompletionChunk]:
        return self._chunks(await self._deltas.__anext__())

    def _cancel(self) -> None:
        self._deltas.close()

    def _chunks(self, delta: Delta) -> Iterator[ChatCompletionChunk]:
        if not self._started:
            self._started = True
            yield self._chunk({"role": "assistant", "content": ""}, logprobs=())

        choice_deltas = self._choice_deltas(delta)
        if delta.logprobs and not choice_deltas:
            choice_deltas = [{"content": ""}]  # The entry is told now; its text later, or never.

        logprobs = delta.logprobs
        for choice_delta in choice_deltas:
            yield self._chunk(choice_delta, logprobs=logprobs)
            logprobs = ()

        if delta.finish_reason is None:
            return

        yield self._chunk({}, finish_reason=self._finish_reason(delta.finish_reason))
        if self._include_usage:
            counts = {
                "prompt_tokens": delta.prompt_tokens,
                "completion_tokens": delta.completion_tokens,
                "total_tokens": delta.prompt_tokens + delta.completion_tokens,
            }
            yield ChatCompletionChunk.model_validate(
                {**self._common, "choices": [], "usage": counts}
            )

    def _choice_deltas(self, delta: Delta) -> list[dict[str, Any]]:
        parser = self._tool_parser
        if parser is None:
            return [{"content": delta.text}] if delta.text else []

        choice_deltas = parser.put(delta.text)
        if delta.finish_reason is not None:
            choice_deltas += parser.finish(is_cut=delta.finish_reason == "length")

        return choice_deltas

    def _finish_reason(self, reason: str) -> str:
        calls_tools = self._tool_parser is not None and self._tool_parser.num_calls > 0
        return "tool_calls" if calls_tools and reason == "stop" else reason

    def _chunk(
        self,
        delta: dict[str, Any],
        *,
        logprobs: tuple[TokenLogprob, ...] | None = None,
        finish_reason: str | None = None,
    ) -> ChatCompletionChunk:
        # One call that validates a dict is twice as fast as a constructor per nested model.
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        if self._logprobs is not None and logprobs is not None:
            choice["logprobs"] = self._logprobs.write(logprobs)
        return ChatCompletionChunk.model_validate({**self._common, "choices": [choice]})
