"""The records that every skill hands out, and the rule that keeps test prompts out of training."""

from __future__ import annotations

__all__ = ("Dialogue", "Fact", "JsonObject", "Message", "is_held_out", "say")

import zlib
from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]
Message = dict[str, Any]

_HELD_OUT_SHARE = 10


@dataclass(frozen=True, slots=True)
class Fact:
    """One question with its full answer and the bare value inside it."""

    question: str
    answer: str
    core: str
    key: str


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A whole conversation; the last message is the assistant's reference answer.

    `key` names the combination that the last answer depends on.
    """

    skill: str
    messages: tuple[Message, ...]
    key: str
    accept: tuple[str, ...] = ()
    tools: tuple[JsonObject, ...] = ()
    characters: tuple[str, ...] = ()


def say(role: str, content: str) -> Message:
    """Make one plain message."""
    return {"role": role, "content": content}


def is_held_out(key: str) -> bool:
    """Tell whether the combination `key` is reserved for the evaluation."""
    return zlib.crc32(key.encode()) % _HELD_OUT_SHARE == 0
