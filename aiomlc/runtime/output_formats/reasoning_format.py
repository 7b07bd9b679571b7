"""The marks between which a model thinks before it answers."""

from __future__ import annotations

__all__ = ("ReasoningFormat", "find_reasoning_format")

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """An answer may begin with thoughts between two marks, or the prompt opens the first."""

    begin: str
    end: str

    @property
    def marks(self) -> tuple[str, str]:
        """The marks, which the text must show even where the vocabulary calls them special."""
        return self.begin, self.end


_FORMATS = (
    ReasoningFormat("<think>", "</think>"),  # DeepSeek R1, Qwen 3 and many others.
    ReasoningFormat("[THINK]", "[/THINK]"),  # Mistral's.
)


def find_reasoning_format(template_source: str) -> ReasoningFormat | None:
    """The marks that a chat template knows; None if it knows none of ours."""
    for reasoning_format in _FORMATS:
        # A template that only opens the thoughts, or only removes those of the past, has one mark.
        if any(mark in template_source for mark in reasoning_format.marks):
            return reasoning_format

    return None
