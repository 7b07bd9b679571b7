"""The placeholders of conversation templates."""

from __future__ import annotations

__all__ = ("MessagePlaceholders",)

from enum import Enum


class MessagePlaceholders(Enum):
    """Placeholders of a conversation template for contents, with MLC LLM's names."""

    SYSTEM = "{system_message}"
    USER = "{user_message}"
    ASSISTANT = "{assistant_message}"
    TOOL = "{tool_message}"
    FUNCTION = "{function_string}"
