"""Ranks replicas by the chance that they have cached the beginning of a prompt."""

from __future__ import annotations

__all__ = ("prefix_key", "rank_replicas")

import hashlib
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import orjson

# The roles of messages that begin many conversations.
_SHARED_ROLES = ("system", "developer")
_PROMPT_CHARACTERS = 256
_PROMPT_TOKENS = 64


def prefix_key(fields: Mapping[str, Any]) -> str | None:
    """Return the same key for requests whose prompts begin alike; None if nothing is shared.

    A chat begins with its tools and its system messages, and without any with its first message. So
    the turns of a conversation, and all conversations with one system prompt, have one key. Other
    prompts are compared by their first 256 characters or 64 tokens.

    Args:
        fields: The body of a request; it may be invalid.
    """
    beginning = _beginning(fields)
    if not beginning:
        return None

    text = orjson.dumps([fields.get("model"), fields.get("tools"), beginning])
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def rank_replicas(
    key: str | None, loads: Mapping[str, int], *, max_imbalance: int
) -> list[list[str]]:
    """Return groups of replicas in the order in which they should get a request.

    The order of a key depends on the names alone (rendezvous hashing), so a replica that comes or
    goes moves no key among the others. Replicas that are busier than the least busy one by more
    than `max_imbalance` requests come last.

    Args:
        key: The key of the request's prefix; None: any replica is as good.
        max_imbalance: The allowed difference in requests.

    Returns:
        Names of replicas: one in each group, or all in one group if there is no key.
    """
    if key is None or not loads:
        return [list(loads)]

    limit = min(loads.values()) + max_imbalance
    ranked = sorted(loads, key=lambda name: _score(key, name), reverse=True)
    return [[name] for name in sorted(ranked, key=lambda name: loads[name] > limit)]


def _score(key: str, name: str) -> bytes:
    return hashlib.blake2b(f"{key} {name}".encode(), digest_size=8).digest()


def _beginning(fields: Mapping[str, Any]) -> object:
    messages = fields.get("messages")
    if messages is None:
        messages = fields.get("input")  # Of a response: a text, or messages after instructions.

    if isinstance(messages, list):
        return fields.get("instructions") or _first_messages(messages)

    prompt = fields.get("instructions") or fields.get("prompt", messages)
    if isinstance(prompt, str):
        return prompt[:_PROMPT_CHARACTERS]

    return prompt[:_PROMPT_TOKENS] if isinstance(prompt, list) else None


def _first_messages(messages: Sequence[Any]) -> Sequence[Any]:
    shared = list(takewhile(_is_shared, messages))
    return shared or messages[:1]


def _is_shared(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") in _SHARED_ROLES
