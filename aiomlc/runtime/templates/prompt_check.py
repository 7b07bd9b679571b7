"""A check that a chat template has not left out what the user wrote."""

from __future__ import annotations

__all__ = ("check_user_text",)

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from aiomlc.errors import BadRequestError
from aiomlc.runtime.templates.message_forms import Messages, content_text, texts_in

# A private-use character, which no template looks for.
_OTHER_CHARACTER = "\ue002"
_VISIBLE = re.compile(r"\S")
_logger = logging.getLogger("aiomlc")


def check_user_text(render: Callable[[Messages], str], messages: Messages, prompt: str) -> None:
    """Require that the prompt depends on the text of the last message of the user.

    A template may trim, escape or rewrite a text, so a text that is not found in the prompt is not
    an error in itself. It is one if another text of the same length gives the same prompt.

    Raises:
        BadRequestError: If the prompt does not depend on the text.
    """
    users = [n for n, message in enumerate(messages) if message.get("role") == "user"]
    is_found = texts_in(prompt, messages)
    missing = [position for position in users if not is_found[position]]
    # At most two more renderings: a template may leave out many earlier messages.
    for position in {*missing[:1], *missing[-1:]}:
        if not _is_ignored(render, messages, position, prompt):
            continue

        problem = f"the model's chat template leaves out the text of messages[{position}]"
        if position == users[-1]:
            raise BadRequestError(
                f"{problem}: correct the template, or use completions.create with a prompt",
                param=f"messages[{position}].content",
            )

        _logger.warning("%s", problem)


def _is_ignored(
    render: Callable[[Messages], str], messages: Messages, position: int, prompt: str
) -> bool:
    """Whether the prompt stays the same if a message has another text of the same length."""
    message = messages[position]
    if not content_text(message["content"]).strip():
        return False

    other = {**message, "content": _with_other_text(message["content"])}
    try:
        return render([*messages[:position], other, *messages[position + 1 :]]) == prompt
    except BadRequestError:
        return False


def _with_other_text(content: object) -> object:
    if isinstance(content, list):
        return [_with_other_part(part) for part in content]

    return _VISIBLE.sub(_OTHER_CHARACTER, str(content))


def _with_other_part(part: Mapping[str, Any]) -> dict[str, Any]:
    text = part.get("text")
    return {**part, "text": _VISIBLE.sub(_OTHER_CHARACTER, text)} if text else dict(part)
