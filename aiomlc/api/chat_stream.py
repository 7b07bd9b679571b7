"""A chat completion as a stream of OpenAI's chunks."""

from __future__ import annotations

__all__ = ("ChatCompletionStream",)

import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self, final

from anyio.lowlevel import checkpoint

from aiomlc.api.protocol.chat import ChatCompletionChunk
from aiomlc.runtime.stream import Delta, DeltaStream


@final
class ChatCompletionStream:
    """The chunks of one answer. Leaving it early, in any way, cancels the request.

    An async iterator for one task, and an async context manager; it works with
    `contextlib.aclosing`. When the reader is slow, the chunks it missed come merged as one.
    """

    def __init__(
        self, deltas: DeltaStream, *, model: str, include_usage: bool, owner: object
    ) -> None:
        self._deltas = deltas
        self._include_usage = include_usage
        self._owner = owner  # The engine serves as long as somebody reads.
        self._ready: deque[ChatCompletionChunk] = deque()
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

    @property
    def request_id(self) -> str:
        """The id of every chunk, and what `abort` takes."""
        return self._deltas.request_id

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatCompletionChunk:
        if self._ready:
            await checkpoint()

        while not self._ready:
            self._ready.extend(self._chunks(await self._deltas.__anext__()))

        return self._ready.popleft()

    async def receive_batch(self) -> list[ChatCompletionChunk]:
        """Wait for a chunk, and take all that are there; an empty list is the end."""
        try:
            batch = [await self.__anext__()]
        except StopAsyncIteration:
            return []

        batch.extend(self._ready)
        self._ready.clear()
        return batch

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Close the stream."""
        self.close()
        await checkpoint()

    def close(self) -> None:
        """Cancel what is unfinished. Never blocks, so it is safe in a cancelled scope."""
        self._ready.clear()
        self._deltas.close()

    def _chunks(self, delta: Delta) -> Iterator[ChatCompletionChunk]:
        if not self._started:
            self._started = True
            yield self._chunk({"role": "assistant", "content": ""})

        if delta.text:
            yield self._chunk({"content": delta.text})

        if delta.finish_reason is None:
            return

        yield self._chunk({}, delta.finish_reason)
        if self._include_usage:
            counts = {
                "prompt_tokens": delta.prompt_tokens,
                "completion_tokens": delta.completion_tokens,
                "total_tokens": delta.prompt_tokens + delta.completion_tokens,
                "prompt_tokens_details": {"cached_tokens": delta.cached_tokens},
            }
            yield ChatCompletionChunk.model_validate(
                {**self._common, "choices": [], "usage": counts}
            )

    def _chunk(
        self, delta: dict[str, str], finish_reason: str | None = None
    ) -> ChatCompletionChunk:
        # One call that validates a dict is twice as fast as a constructor per nested model.
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return ChatCompletionChunk.model_validate({**self._common, "choices": [choice]})
