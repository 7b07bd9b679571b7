"""A conversation with an engine: the messages so far, and the answer under way."""

from __future__ import annotations

__all__ = ("AnswerStatistics", "Conversation")

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from anyio import CancelScope

if TYPE_CHECKING:
    from aiomlc.api.engines.async_engine import AsyncMLCEngine
    from aiomlc.api.protocol.chat import ChatCompletionChunk


@dataclass(frozen=True, slots=True)
class AnswerStatistics:
    """How one answer went. Of an answer that its reader stopped, no more than that is known."""

    completion_tokens: int = 0
    first_token_seconds: float = 0.0
    decode_tokens: int = 0  #: As the core counts them; the first token is the prefill's.
    decode_seconds: float = 0.0
    finish_reason: str | None = None  #: None when the reader stopped the answer.

    @property
    def tokens_per_second(self) -> float | None:
        """The rate after the first token; None where there was no second one."""
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
class Conversation:
    """One conversation; one answer at a time."""

    def __init__(
        self,
        engine: AsyncMLCEngine,
        *,
        system: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._engine = engine
        self._options = dict(options or {})  #: Fields of every request.
        self._beginning = [{"role": "system", "content": system}] if system else []
        self._answering: CancelScope | None = None
        self.messages: list[Mapping[str, str]] = list(self._beginning)

    def reset(self) -> None:
        """Forget what was said."""
        self.messages = list(self._beginning)

    def stop(self) -> None:
        """End the answer under way; what was said of it stays in the conversation."""
        if self._answering is not None:
            self._answering.cancel()

    async def answer(self, prompt: str, write: Callable[[str], object]) -> AnswerStatistics:
        """Ask, and write the answer as it comes."""
        asked = [*self.messages, {"role": "user", "content": prompt}]
        answer = _Answer(write)
        try:
            with CancelScope() as self._answering:
                await self._stream(asked, answer)
        finally:
            self._answering = None

        if answer.parts:
            text = "".join(answer.parts)
            self.messages = [*asked, {"role": "assistant", "content": text}]
        return answer.statistics

    async def _stream(self, messages: list[Mapping[str, str]], answer: _Answer) -> None:
        # Before the request is made: a small model has answered by the time the stream is here.
        before = self._engine.statistics()
        stream = await self._engine.chat.completions.create(
            messages=messages,
            stream=True,
            stream_options={"include_usage": True},
            **self._options,
        )
        async with stream:
            async for chunk in stream:
                answer.take(chunk)

        after = self._engine.statistics()
        answer.statistics = replace(
            answer.statistics,
            decode_tokens=after.decode_tokens - before.decode_tokens,
            decode_seconds=after.decode_seconds - before.decode_seconds,
        )


class _Answer:
    """What one stream has said so far."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._started = time.perf_counter()
        self.parts: list[str] = []
        self.statistics = AnswerStatistics()

    def take(self, chunk: ChatCompletionChunk) -> None:
        for choice in chunk.choices:
            if text := choice.delta.content:
                self._say(text)
            if choice.finish_reason is not None:
                self.statistics = replace(self.statistics, finish_reason=choice.finish_reason)

        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
            self.statistics = replace(self.statistics, completion_tokens=tokens)

    def _say(self, text: str) -> None:
        if not self.parts:
            seconds = time.perf_counter() - self._started
            self.statistics = replace(self.statistics, first_token_seconds=seconds)

        self.parts.append(text)
        self._write(text)
