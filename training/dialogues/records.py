"""The records of a dialogue, and the rule that keeps held-out prompts out of training."""

from __future__ import annotations

__all__ = ("Dialogue", "Fact", "JsonObject", "Message", "is_held_out", "say")

import zlib
from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]
Message = dict[str, Any]

_HELD_OUT_INTERVAL = 10  # One key in ten is held out.


@dataclass(frozen=True, slots=True)
class Fact:
    """A question and its answer."""

    question: str
    answer: str  #: A full sentence.
    core: str  #: The value in the answer.
    key: str  #: The combination that determines the answer.
    values: tuple[str, ...] = ()  #: With a grammar, the parts of the answer that are learned.


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation; the last message is the assistant's reference answer.

    `key` is the combination that determines the last answer.
    """

    skill: str
    messages: tuple[Message, ...]
    key: str
    accept: tuple[str, ...] = ()
    tools: tuple[JsonObject, ...] = ()
    characters: tuple[str, ...] = ()


def say(role: str, content: str, values: tuple[str, ...] = ()) -> Message:
    """Return a message without tool calls."""
    message: Message = {"role": role, "content": content}
    return message | {"values": values} if values else message


def is_held_out(key: str) -> bool:
    """Return whether the combination `key` is reserved for the evaluation."""
    return zlib.crc32(key.encode()) % _HELD_OUT_INTERVAL == 0
