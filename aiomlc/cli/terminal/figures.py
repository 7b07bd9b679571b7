"""The figures of responses and of the engine, as lines for people."""

from __future__ import annotations

__all__ = ("ResponseFigures", "count", "describe_engine")

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiomlc.runtime.engine.core_protocol import CoreStatistics


@dataclass(frozen=True, slots=True)
class ResponseFigures:
    """Token counts and times of one response; incomplete if the user stopped the response."""

    completion_tokens: int = 0
    first_token_seconds: float = 0.0
    decode_tokens: int = 0  #: Tokens after the first one, which belongs to the prefill.
    decode_seconds: float = 0.0
    prompt_tokens: int = 0
    finish_reason: str | None = None  #: None if the user stopped the response.
    fills_context: bool = False  #: Whether prompt and completion fill the context window.

    def __str__(self) -> str:
        if self.finish_reason is None:
            return "stopped"

        parts = [count(self.completion_tokens, "token")]
        if self.first_token_seconds > 0:
            parts.append(f"first after {self.first_token_seconds * 1000:.0f} ms")
        else:
            parts.append("the answer is empty")
        if self.decode_seconds > 0:
            parts.append(_rate(self.decode_tokens, self.decode_seconds))
        if self.finish_reason == "length":
            reason = "the context is full" if self.fills_context else "the limit of max_tokens"
            parts.append(f"cut off: {reason}")
        return ", ".join(parts)


def describe_engine(statistics: CoreStatistics) -> dict[str, str]:
    """Return the figures of an engine since it was opened, by name."""
    first = statistics.first_token_seconds
    mean = f"{first.sum / first.count * 1000:.0f} ms on average" if first.count else "no answer yet"
    used = statistics.total_pages - statistics.free_pages
    return {
        "prompts": f"{count(statistics.prompt_tokens, 'token')}, "
        f"{statistics.cached_tokens:,} of them cached",
        "answers": count(statistics.completion_tokens, "token"),
        "prefill": _rate(statistics.prefill_tokens, statistics.prefill_seconds),
        "decode": _rate(statistics.decode_tokens, statistics.decode_seconds),
        "first token": mean,
        "KV cache": f"{used:,} of {count(statistics.total_pages, 'page')} used",
    }


def count(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _rate(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:,.1f} tokens/s" if seconds > 0 else "not measured yet"
