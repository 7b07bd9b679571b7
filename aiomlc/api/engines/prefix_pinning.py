"""`engine.pin_prefix`: from messages or a text to tokens that stay computed."""

from __future__ import annotations

__all__ = ("pin_prefix",)

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiomlc.api.chat.prompt import render_prompt
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.api.protocol.token import parse_token_request
from aiomlc.api.session.session import ModelSession
from aiomlc.errors import BadRequestError
from aiomlc.runtime.engine.pinned_prefix import PinnedPrefix


async def pin_prefix(
    session: ModelSession,
    messages: Iterable[object] | None,
    prompt: str | Sequence[int] | None,
    options: Mapping[str, Any],
) -> PinnedPrefix:
    """Compute what prompts will begin with; `options` are fields of a chat, for its template.

    Raises:
        BadRequestError: not one of the two is given, or a field is invalid.
    """
    if (messages is None) == (prompt is None):
        raise BadRequestError("pin_prefix takes either messages or a prompt", param="prompt")

    if prompt is not None:
        prompt = parse_token_request({"prompt": prompt}).prompt
    else:
        given = {name: value for name, value in options.items() if value is not None}
        fields = {"messages": messages, "add_generation_prompt": False, **given}
        prompt = render_prompt(parse_chat_request(fields), session.model)

    prompt_ids = await session.prompt_ids(prompt)
    session.check_prompt(prompt_ids)
    return await session.engine.pin(prompt_ids)
