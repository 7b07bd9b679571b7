"""The parsers of a choice's text into reasoning, content and tool calls."""

from __future__ import annotations

__all__ = ("ChoiceDelta", "ChoiceParser", "MarkedParser")

from typing import Any, Protocol, final

from aiomlc.api.chat.reasoning import ReasoningParser
from aiomlc.api.chat.tool_parser import ToolCallParser
from aiomlc.runtime.engine.stream import Delta

ChoiceDelta = dict[str, Any]


class ChoiceParser(Protocol):
    """An incremental parser of the text of one choice."""

    @property
    def has_calls(self) -> bool:
        """Whether there are tool calls, and all of them are complete."""
        ...

    @property
    def reasoning_tokens(self) -> int | None:
        """The tokens of the reasoning so far; None if it is not separated from the content."""
        ...

    def parse(self, delta: Delta) -> list[ChoiceDelta]:
        """Add text; return the deltas that are now certain, and after the last text all others."""
        ...


@final
class MarkedParser:
    """The parser of text in which markers enclose the reasoning and the tool calls.

    Args:
        reasoning: The parser of the reasoning; None if it is not separated from the content.
        calls: The parser of tool calls; None if no tools are offered.
    """

    def __init__(self, reasoning: ReasoningParser | None, calls: ToolCallParser | None) -> None:
        self._reasoning = reasoning
        self._calls = calls

    @property
    def has_calls(self) -> bool:
        calls = self._calls
        return calls is not None and calls.num_calls > 0 and not calls.has_broken_call

    @property
    def reasoning_tokens(self) -> int | None:
        return None if self._reasoning is None else self._reasoning.num_tokens

    def parse(self, delta: Delta) -> list[ChoiceDelta]:
        if self._reasoning is None:
            return self._parse_calls(delta, delta.text)

        reasoning, text = self._split_reasoning(delta, self._reasoning)
        deltas = self._parse_calls(delta, text)
        return [{"reasoning_content": reasoning}, *deltas] if reasoning else deltas

    def _split_reasoning(self, delta: Delta, parser: ReasoningParser) -> tuple[str, str]:
        reasoning, text = parser.put(delta.text, len(delta.token_ids))
        if delta.finish_reason is not None:
            last_reasoning, last_text = parser.finish()
            reasoning, text = reasoning + last_reasoning, text + last_text

        return reasoning, text

    def _parse_calls(self, delta: Delta, text: str) -> list[ChoiceDelta]:
        if self._calls is None:
            return [{"content": text}] if text else []

        deltas = self._calls.put(text)
        if delta.finish_reason is not None:
            deltas += self._calls.finish(is_truncated=delta.finish_reason == "length")

        return deltas
