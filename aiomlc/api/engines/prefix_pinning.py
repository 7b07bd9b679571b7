"""The implementation of `engine.pin_prefix`."""

from __future__ import annotations

__all__ = ("pin_prefix",)

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiomlc.api.chat.preparation import render_chat
from aiomlc.api.protocol.chat_request import parse_chat_request
from aiomlc.api.protocol.limits import parse_off_loop
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
    """Compute a common prefix of prompts, and pin it in the prefix cache.

    Args:
        session: The session of the model.
        messages: The first messages of chats. Exclusive with `prompt`.
        prompt: The beginning of prompts of text completions: a string, or token ids.
        options: Fields of a chat that its template uses.

    Raises:
        BadRequestError: If not exactly one of `messages` and `prompt` is given, or a field is
            invalid.
        PromptTooLongError: If the prefix leaves no room for a completion.
        EngineError: If the engine is closed, dead, or failed on this prefix.
    """
    if (messages is None) == (prompt is None):
        raise BadRequestError("pin_prefix takes either messages or a prompt", param="prompt")

    if prompt is not None:
        prompt = (await parse_off_loop(parse_token_request, {"prompt": prompt})).prompt
    else:
        template_options = {name: value for name, value in options.items() if value is not None}
        fields = {"messages": messages, "add_generation_prompt": False, **template_options}
        request = await parse_off_loop(parse_chat_request, fields)
        prompt = await render_chat(request, session.model)

    prompt_ids = await session.prompt_ids(prompt)
    session.check_prompt(prompt_ids)
    return await session.engine.pin(prompt_ids)
