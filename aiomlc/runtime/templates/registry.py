"""Conversation templates by their names: those of common models, and a program's own."""

from __future__ import annotations

__all__ = ("CONVERSATIONS", "get_conversation_template", "register_conversation_template")

import difflib
from os import PathLike

from aiomlc.errors import ModelLoadError
from aiomlc.runtime.templates.common_conversations import COMMON_CONVERSATIONS
from aiomlc.runtime.templates.conversation import Conversation
from aiomlc.runtime.templates.marked_conversations import MARKED_CONVERSATIONS
from aiomlc.runtime.templates.worded_conversations import WORDED_CONVERSATIONS
from aiomlc.validation.arguments import check_flag, check_type

CONVERSATIONS = (*COMMON_CONVERSATIONS, *MARKED_CONVERSATIONS, *WORDED_CONVERSATIONS)
_registered = {conversation.name: conversation for conversation in CONVERSATIONS}


def register_conversation_template(conversation: Conversation, *, override: bool = False) -> None:
    """Give a template to the models whose `conv_template` is its name.

    Raises:
        BadRequestError: it is no template.
        ValueError: it has no name, or one that is taken and not to be overridden.
    """
    check_type("conversation", conversation, Conversation, "a Conversation")
    check_flag("override", override)
    if not conversation.name:
        raise ValueError("the conversation template has no name")

    if conversation.name in _registered and not override:
        raise ValueError(f"there is a conversation template {conversation.name!r} already")

    _registered[conversation.name] = conversation


def get_conversation_template(
    name: str,
    *,
    path: str | PathLike[str] | None = None,
    field: str = "conv_template",
) -> Conversation:
    """The template of that name; `path` and `field` say where the name is written.

    Raises:
        ModelLoadError: there is none; the message has the names most like it.
    """
    if (conversation := _registered.get(name)) is not None:
        return conversation

    names = sorted(filter(None, _registered))
    by_lower = {known.lower(): known for known in names}
    near = [by_lower[one] for one in difflib.get_close_matches(name.lower(), by_lower, cutoff=0.5)]
    hint = f"near it: {', '.join(near)}" if near else f"known: {', '.join(names)}"
    raise ModelLoadError(
        f"{'' if path is None else f'{path}: '}{field}: there is no conversation template "
        f"{name!r} ({hint})",
        path=path,
        field=field,
    )
