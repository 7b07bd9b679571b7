"""The chat session of the `chat` command: the messages so far and the running response."""

from __future__ import annotations

__all__ = ("ChatSession", "ResponseStatistics")

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from anyio import CancelScope

if TYPE_CHECKING:
    from aiomlc.api.engines.async_engine import AsyncMLCEngine
    from aiomlc.api.protocol.chat import ChatCompletionChunk


@dataclass(frozen=True, slots=True)
class ResponseStatistics:
    """Token counts and times of one response; incomplete if the user stopped the response."""

    completion_tokens: int = 0
    first_token_seconds: float = 0.0
    decode_tokens: int = 0  #: Tokens after the first one, which belongs to the prefill.
    decode_seconds: float = 0.0
    finish_reason: str | None = None  #: None if the user stopped the response.

    @property
    def tokens_per_second(self) -> float | None:
        """The decode rate after the first token; None if there was no second token."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds > 0 else None

    def __str__(self) -> str:
        if self.finish_reason is None:
            return "stopped"

        rate = self.tokens_per_second
        parts = [
            f"{self.completion_tokens} tokens",
            f"first after {self.first_token_seconds * 1000:.0f} ms",
            *([f"{rate:.1f} tokens/s"] if rate is not None else []),
            *(["cut off at the limit"] if self.finish_reason == "length" else []),
        ]
        return ", ".join(parts)


@final
class ChatSession:
    """A multi-turn chat with one engine, which generates one response at a time."""

    def __init__(
        self,
        engine: AsyncMLCEngine,
        *,
        system: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._engine = engine
        self._options = dict(options or {})  #: Fields of every request.
        self._system_messages = [{"role": "system", "content": system}] if system else []
        self._cancel_scope: CancelScope | None = None
        self.messages: list[Mapping[str, str]] = list(self._system_messages)

    def reset(self) -> None:
        """Remove all messages except the system message."""
        self.messages = list(self._system_messages)

    def stop(self) -> None:
        """Stop the running response; its text so far stays in the conversation."""
        if self._cancel_scope is not None:
            self._cancel_scope.cancel()

    async def answer(self, prompt: str, write: Callable[[str], object]) -> ResponseStatistics:
        """Add a user message and generate the response.

        Args:
            prompt: The content of the user message.
            write: Called with each new text of the response.
        """
        messages = [*self.messages, {"role": "user", "content": prompt}]
        response = _ResponseCollector(write)
        try:
            with CancelScope() as self._cancel_scope:
                await self._stream(messages, response)
        finally:
            self._cancel_scope = None

        if response.deltas:
            text = "".join(response.deltas)
            self.messages = [*messages, {"role": "assistant", "content": text}]
        return response.statistics

    async def _stream(
        self, messages: list[Mapping[str, str]], response: _ResponseCollector
    ) -> None:
        # Read before the request, because a small model may finish before `create` returns.
        before = self._engine.statistics()
        stream = await self._engine.chat.completions.create(
            messages=messages,
            stream=True,
            stream_options={"include_usage": True},
            **self._options,
        )
        async with stream:
            async for chunk in stream:
                response.add(chunk)

        after = self._engine.statistics()
        response.statistics = replace(
            response.statistics,
            decode_tokens=after.decode_tokens - before.decode_tokens,
            decode_seconds=after.decode_seconds - before.decode_seconds,
        )


class _ResponseCollector:
    """A collector of one stream's text and statistics."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._start = time.perf_counter()
        self.deltas: list[str] = []
        self.statistics = ResponseStatistics()

    def add(self, chunk: ChatCompletionChunk) -> None:
        for choice in chunk.choices:
            if text := choice.delta.content:
                self._add_text(text)
            if choice.finish_reason is not None:
                self.statistics = replace(self.statistics, finish_reason=choice.finish_reason)

        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
            self.statistics = replace(self.statistics, completion_tokens=tokens)

    def _add_text(self, text: str) -> None:
        if not self.deltas:
            seconds = time.perf_counter() - self._start
            self.statistics = replace(self.statistics, first_token_seconds=seconds)

        self.deltas.append(text)
        self._write(text)
